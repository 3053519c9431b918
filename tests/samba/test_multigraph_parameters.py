"""Graphs of one PEF over parameters that not all of them have, or train, or call alike."""

from __future__ import annotations

import pytest
import torch
from near import assert_near, exactly
from torch import nn
from torch.nn import functional

import pef
import sambaflow.samba as samba
from sambaflow.samba import utils
from sambaflow.samba.graph import FwdGraph, SambaGraph

ROWS = 6


class Task(nn.Module):
    """A loss over a network; `beside` are modules that it has and does not use."""

    def __init__(self, net, *beside):
        super().__init__()
        self.net = net
        self.beside = nn.ModuleList(beside)

    def forward(self, x, goal):
        return functional.mse_loss(self.net(x), goal)


class Answer(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.inner = net

    def forward(self, one):
        return self.inner(one)


class Tied(nn.Module):
    """Reads one weight under two paths."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(ROWS, 3)
        self.scores = nn.Linear(3, ROWS, bias=False)
        self.scores.weight = self.words.weight

    def forward(self, numbers):
        return self.scores(torch.tanh(self.words(numbers)))


def values(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def given(tensors):
    return tuple(samba.from_torch_tensor(tensor, name=name) for name, tensor in tensors.items())


def traced(graphs):
    """Trace `graphs`, a model, inputs and an optimizer or None by name; return their outputs."""
    outputs = {}
    for name, (model, inputs, optimizer) in graphs.items():
        outputs[name] = utils.trace_multigraph(model, given(inputs), optimizer, trace_prefix=name)
        kind = SambaGraph if optimizer else FwdGraph
        samba.session.add_graph(kind(given(inputs), outputs[name], name=name))
    return outputs


def started(folder, make):
    """Compile what `make` makes, and start an application with it anew.

    Return the inputs and outputs of its graphs by name.
    """
    samba.session.reset()
    traced(make(samba.optim))
    path = samba.session.compile_multigraph(
        name="graphs", config_dict={"output_folder": str(folder)}
    )
    samba.session.reset()
    graphs = make(samba.optim)
    outputs = traced(graphs)
    samba.session.init_multigraph_runtime(path)
    return {name: (inputs, outputs[name]) for name, (_, inputs, _) in graphs.items()}


def run(graphs, name):
    inputs, outputs = graphs[name]
    (found,) = samba.session.run(given(inputs), outputs, graph_name=name)
    return found.torch().detach().clone()


def compare(folder, make, rounds=3):
    """Run all graphs by turns here and in torch, in float64, and compare what they give."""
    ours, plain = started(folder, make), make(torch.optim)
    for model, _, _ in plain.values():
        model.double()
    for _ in range(rounds):
        for name, (model, inputs, optimizer) in plain.items():
            expected = model(*exactly(inputs).values())
            if optimizer:
                optimizer.zero_grad()
                expected.backward()
                optimizer.step()
            assert_near(run(ours, name), expected, what=name)


def test_a_weight_with_two_paths_is_one_in_all_graphs(tmp_path):
    def make(module):
        torch.manual_seed(0)
        net = Tied()
        task = Task(net)
        inputs = {"x": torch.arange(ROWS), "goal": values(ROWS, ROWS)}
        return {  # this one, before the other, calls the weight by the second of its paths
            "answer": (Answer(net.scores), {"one": values(2, 3)}, None),
            "task": (task, inputs, module.SGD(task.parameters(), lr=0.5)),
        }

    compare(tmp_path, make)


def heads(module, optimizer):
    """Two tasks, each with a head of its own over one trunk; one has that of the other beside."""
    torch.manual_seed(0)
    trunk, first, second, idle = (nn.Linear(3, 3) for _ in range(4))
    tasks = (
        Task(nn.Sequential(trunk, nn.Tanh(), first), second, idle),
        Task(nn.Sequential(trunk, nn.Tanh(), second), idle),
    )
    for number, task in enumerate(tasks):
        task.name = f"task{number}"
    chosen = optimizer(module, (trunk, first, second, idle))
    return {
        f"task{number}": (task, {"x": values(ROWS, 3), "goal": values(ROWS, 3)}, chosen)
        for number, task in enumerate(tasks)
    }


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_one_optimizer_has_parameters_that_a_graph_does_not_train(tmp_path, kind):
    """What no loss of a graph reaches has no state there that another could share."""

    def optimizer(module, modules):
        # Without betas, samba's are others than torch's.
        adamw = {"weight_decay": 0.1, "betas": (0.8, 0.95)}
        options = {"momentum": 0.9} if kind == "SGD" else adamw
        trunk, *heads = ([*each.parameters()] for each in modules)
        parameters = [{"params": trunk}, *({"params": [*head]} for head in heads[:2])]
        parameters[1]["params"] += heads[2]
        if kind == "SGD":  # which counts no steps: all may be in one group
            parameters = [one for group in parameters for one in group["params"]]
        return getattr(module, kind)(parameters, lr=0.01, **options)

    compare(tmp_path, lambda module: heads(module, optimizer))


def test_a_group_that_no_loss_reaches_is_no_difference(tmp_path):
    def make(module):
        torch.manual_seed(0)
        task = Task(nn.Linear(3, 3), nn.Linear(3, 3))
        optimizer = module.SGD([{"params": [*each.parameters()]} for each in task.children()], 0.1)
        return {"task": (task, {"x": values(ROWS, 3), "goal": values(ROWS, 3)}, optimizer)}

    compare(tmp_path, make)


def test_an_optimizer_of_a_graph_for_inference_is_a_difference(tmp_path):
    def make(module, *, swapped=False):
        net = nn.Linear(3, 3)
        models = Task(net), Answer(net)
        inputs = {"x": values(ROWS, 3), "goal": values(ROWS, 3)}, {"one": values(2, 3)}
        optimizers = [module.SGD(net.parameters(), lr=0.1), None][:: -1 if swapped else 1]
        return dict(
            zip(("task", "answer"), zip(models, inputs, optimizers, strict=True), strict=True)
        )

    started(tmp_path, make)
    path = samba.session.device.path
    samba.session.reset()
    traced(make(samba.optim, swapped=True))
    told = "an optimizer is given for graph 'answer', in the PEF it is for inference"
    with pytest.raises(samba.SambaError, match=told):
        samba.session.init_multigraph_runtime(path)


def test_steps_counted_for_parameters_that_some_graphs_train_are_told(tmp_path):
    def optimizer(module, modules):
        return module.AdamW([p for each in modules for p in each.parameters()], lr=0.1)

    told = (
        r"the parameter group 'adamw' counts the steps of 2 graphs, which do not all train "
        r"net\.2\.bias, net\.2\.weight; torch counts"
    )
    with pytest.warns(UserWarning, match=told):
        started(tmp_path, lambda module: heads(module, optimizer))


class Shifted(nn.Module):
    """A loss over a network and a shift, which it learns or whose mean alone it takes."""

    def __init__(self, net, shift, learns):
        super().__init__()
        self.net, self.shift, self.learns = net, shift, learns

    def forward(self, x, goal):
        shift = self.shift.w if self.learns else self.shift.w__mean
        return functional.mse_loss(self.net(x) + shift, goal)


def test_what_a_graph_trains_does_not_hang_on_how_buffers_are_called(tmp_path):
    def make(module):
        torch.manual_seed(0)
        net, shift = nn.Linear(3, 3), nn.Module()
        shift.w = nn.Parameter(torch.zeros(3))
        shift.register_buffer("w__mean", torch.ones(3))  # as state of an optimizer would be
        tasks = [Shifted(net, shift, learns) for learns in (True, False)]
        optimizer = module.AdamW(tasks[0].parameters(), lr=0.1)
        return {
            f"task{number}": (task, {"x": values(ROWS, 3), "goal": values(ROWS, 3)}, optimizer)
            for number, task in enumerate(tasks)
        }

    with pytest.warns(
        UserWarning, match=r"2 graphs, which do not all train shift\.w; torch counts"
    ):
        started(tmp_path, make)


def test_parameters_lie_where_they_ask_to(tmp_path):
    def make(module):
        net = nn.Linear(3, 3)
        samba.from_torch_model_(net)
        net.weight.mem_type = "DDR"
        task = Task(net)
        inputs = {"x": values(ROWS, 3), "goal": values(ROWS, 3)}
        return {
            "task": (task, inputs, module.SGD(task.parameters(), lr=0.5)),
            "answer": (Answer(net), {"one": values(2, 3)}, None),
        }

    started(tmp_path, make)
    program = samba.session.device.program
    (place,) = {s.allocation for s in program.symbols if s.name == "net.weight"}
    assert program.allocations[place].region is pef.RegionKind.DDR


def test_products_of_two_types_and_constants_are_recorded(tmp_path):
    class Mixed(nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net
            self.scale = samba.from_torch_tensor(values(3, 3).bfloat16(), name="scale")

        def forward(self, one):
            return self.net(one) @ self.scale

    def make(module):
        torch.manual_seed(0)
        net = nn.Linear(3, 3)
        return {"mixed": (Mixed(net), {"one": values(2, 3)}, None)}

    model, _, _ = make(torch.optim)["mixed"]
    expected = model.net(values(2, 3)) @ values(3, 3).bfloat16().float()
    torch.testing.assert_close(run(started(tmp_path, make), "mixed"), expected.detach())
