"""Graphs that train beside graphs for inference in one PEF, beside torch."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import pef as pef_format
import sambaflow.samba as samba
from sambaflow.samba import SambaError, utils
from sambaflow.samba.graph import FwdGraph, SambaGraph

STEPS, ROWS = 5, 16


class Fit(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x, y):
        return self.loss(self.net(x), y)


class Match(nn.Module):
    """Another task for the same network."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, goal):
        return functional.mse_loss(self.net(x), goal)


class Serve(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.model = net

    def forward(self, one):
        return torch.softmax(self.model(one), -1)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))


def tensors():
    random = torch.Generator().manual_seed(1)
    return {
        "x": torch.randn(ROWS, 4, generator=random),
        "y": torch.randint(0, 3, (ROWS,), generator=random),
        "goal": torch.randn(ROWS, 3, generator=random),
        "one": torch.randn(1, 4, generator=random),
    }


def given(*names):
    return tuple(samba.from_torch_tensor(tensors()[name], name=name) for name in names)


def sgd(model, module=samba.optim):
    return module.SGD(model.parameters(), lr=0.1, momentum=0.9)


def adamw(model, module=samba.optim):
    return module.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.99), weight_decay=0.01)


INPUTS = {"fit": ("x", "y"), "match": ("x", "goal"), "serve": ("one",)}


class Application:
    """Traces graphs over one network: `makers` are their models and optimizers, by graph."""

    def __init__(self, makers):
        self.net = network()
        self.models, self.optimizers, self.outputs = {}, {}, {}
        for name, (model, optimizer) in makers.items():
            made = self.models[name] = model(self.net)
            chosen = self.optimizers[name] = optimizer(made) if optimizer else None
            outputs = utils.trace_multigraph(made, given(*INPUTS[name]), chosen, trace_prefix=name)
            kind = SambaGraph if optimizer else FwdGraph
            samba.session.add_graph(kind(given(*INPUTS[name]), outputs, name=name))
            self.outputs[name] = outputs

    def run(self, name, **options):
        found = samba.session.run(
            given(*INPUTS[name]), self.outputs[name], graph_name=name, **options
        )
        return found[0].torch().detach().clone()


def compiled(folder, makers, **options):
    samba.session.reset()
    Application(makers)
    path = samba.session.compile_multigraph(
        name="graphs", config_dict={"output_folder": str(folder)}, **options
    )
    samba.session.reset()
    return path


def started(path, makers):
    """Start an application anew with a PEF."""
    samba.session.reset()
    application = Application(makers)
    samba.session.init_multigraph_runtime(path)
    return application


class Plain:
    """The same in torch."""

    def __init__(self, makers):
        self.net = network()
        self.models = {name: model(self.net) for name, (model, _) in makers.items()}
        self.optimizers = {
            name: optimizer(self.models[name], torch.optim)
            for name, (_, optimizer) in makers.items()
            if optimizer
        }

    def loss(self, name):
        return self.models[name](*(tensors()[item] for item in INPUTS[name]))

    def step(self, name):
        loss = self.loss(name)
        self.optimizers[name].zero_grad()
        loss.backward()
        self.optimizers[name].step()
        return loss.detach()


ONE = {"serve": (Serve, None), "fit": (Fit, adamw)}
TWO = {"fit": (Fit, adamw), "match": (Match, sgd), "serve": (Serve, None)}


@pytest.fixture(scope="module")
def pef_one(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("one"), ONE)


@pytest.fixture(scope="module")
def pef_two(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("two"), TWO)


def test_what_one_graph_learns_another_answers_with(pef_one):
    application, plain = started(pef_one, ONE), Plain(ONE)
    torch.testing.assert_close(application.run("serve"), plain.loss("serve").detach())
    for _ in range(STEPS):
        torch.testing.assert_close(application.run("fit"), plain.step("fit"))
    torch.testing.assert_close(application.run("serve"), plain.loss("serve").detach())
    judged = application.run("fit", section_types=["fwd"], train=False)
    torch.testing.assert_close(judged, plain.loss("fit").detach())


def test_two_graphs_train_one_network_by_turns(pef_two):
    application, plain = started(pef_two, TWO), Plain(TWO)
    for _ in range(STEPS):
        for name in ("fit", "match"):
            torch.testing.assert_close(application.run(name), plain.step(name))
    torch.testing.assert_close(application.run("serve"), plain.loss("serve").detach())
    assert {"adamw.lr", "sgd.lr"} <= set(samba.session.get_argin_names())


def test_one_optimizer_trains_two_graphs_with_one_state(tmp_path):
    kept = {}

    def one(model, module=samba.optim):
        if module not in kept or kept[module][0] is not model.net:
            kept[module] = model.net, adamw(model, module)
        return kept[module][1]

    makers = {"fit": (Fit, one), "match": (Match, one)}
    application, plain = started(compiled(tmp_path, makers), makers), Plain(makers)
    for _ in range(STEPS):
        for name in makers:
            torch.testing.assert_close(application.run(name), plain.step(name))
    samba.session.to_cpu(application.models["fit"], application.optimizers["fit"])
    found = application.optimizers["fit"].state_dict()["state"]
    wanted = plain.optimizers["fit"].state_dict()["state"]
    for number, state in wanted.items():
        assert found[number]["step"] == state["step"] == 2 * STEPS
        torch.testing.assert_close(found[number]["exp_avg"], state["exp_avg"])


def test_sections_run_by_type_and_by_number(pef_two):
    application, plain = started(pef_two, TWO), Plain(TWO)
    for _ in range(2):
        loss = application.run("match", section_types=["FWD"])
        for kind in ("bckwd", "opt"):
            samba.session.run(graph_name="match", section_types=[kind])
        torch.testing.assert_close(loss, plain.step("match"))
    program = samba.session.device.program
    (graph,) = (graph for graph in program.graphs if graph.name == "match/train")
    calls = range(graph.first_call, graph.first_call + graph.calls)
    ids = [program.schedule[call] for call in calls]
    for asked in ({"section_ids": ids}, {"run_from_call_id": calls.start}):
        torch.testing.assert_close(application.run("match", **asked), plain.step("match"))


def test_states_and_gradients_have_names_of_each_model(pef_two):
    application, plain = started(pef_two, TWO), Plain(TWO)
    start = torch.tensor(2.0)
    application.run("fit", section_types=["FWD", "BCKWD"], grad_of_outputs=[start])
    (plain.loss("fit") * start).backward()
    (found,) = samba.session.get_tensors_by_name(["fit__net__0__weight__grad"])
    torch.testing.assert_close(found.torch(), plain.net[0].weight.grad)
    samba.session.run(graph_name="fit", section_types=["OPT"])
    plain.optimizers["fit"].step()
    for name in ("fit__net__3__weight", "match__net__3__weight", "serve__model__3__weight"):
        (found,) = samba.session.get_tensors_by_name([name])
        torch.testing.assert_close(found.torch(), plain.net[3].weight.detach())
    (found,) = samba.session.get_tensors_by_name(["fit__net__0__weight__exp_avg"])
    wanted = plain.optimizers["fit"].state[plain.net[0].weight]["exp_avg"]
    torch.testing.assert_close(found.torch(), wanted)
    (found,) = samba.session.get_tensors_by_name([application.outputs["fit"][0].sn_grad_name])
    assert found.torch() == start


def test_training_goes_on_from_what_the_host_has(pef_one):
    application, plain = started(pef_one, ONE), Plain(ONE)
    for _ in range(2):
        application.run("fit")
        plain.step("fit")
    model, optimizer = application.models["fit"], application.optimizers["fit"]
    samba.session.to_cpu(model, optimizer)
    state = model.state_dict(), optimizer.state_dict()
    again = started(pef_one, ONE)
    again.models["fit"].load_state_dict(state[0])
    again.optimizers["fit"].load_state_dict(state[1])
    samba.session.to_rdu(again.models["fit"], again.optimizers["fit"])
    for _ in range(2):
        torch.testing.assert_close(again.run("fit"), plain.step("fit"))


def test_the_file_says_which_graphs_train(pef_two):
    with pef_format.open(pef_two) as file:
        program = file.program
    names = [graph.name for graph in program.graphs]
    assert names == ["fit/train", "fit/eval", "match/train", "match/eval", "serve"]
    weights = [s.name for s in program.symbols if s.kind is pef_format.SymbolKind.WEIGHT]
    assert len(weights) == 6


def test_who_brings_no_optimizer_evaluates(pef_one):
    samba.session.reset()
    application = Application({"serve": (Serve, None), "fit": (Fit, None)})
    samba.session.init_multigraph_runtime(pef_one)
    plain = Plain(ONE)
    for _ in range(2):
        torch.testing.assert_close(application.run("fit"), plain.loss("fit").detach())


def test_each_graph_clips_to_the_norm_of_its_own_optimizer(tmp_path):
    norms = {"fit": 0.05, "match": 0.5}

    def clipping(name):
        def made(model, module=samba.optim):
            more = {"max_grad_norm": norms[name]} if module is samba.optim else {}
            return module.SGD(model.parameters(), lr=0.1, **more)

        return made

    makers = {"fit": (Fit, clipping("fit")), "match": (Match, clipping("match"))}
    application, plain = started(compiled(tmp_path, makers), makers), Plain(makers)
    for step in range(4):
        if step == 2:  # the number of the object counts, in its graph alone
            norms["match"] = application.optimizers["match"].max_grad_norm = 0.1
        for name in makers:
            loss = plain.loss(name)
            plain.optimizers[name].zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(plain.models[name].parameters(), norms[name])
            plain.optimizers[name].step()
            torch.testing.assert_close(application.run(name), loss.detach())


def test_a_pef_for_inference_says_that_nothing_trains(tmp_path):
    path = compiled(tmp_path, ONE, inference=True)
    application = Application(ONE)
    with pytest.warns(UserWarning, match=r"has no OPT sections: no run updates parameters"):
        samba.session.init_multigraph_runtime(path)
    plain = Plain(ONE)
    for _ in range(2):
        torch.testing.assert_close(application.run("fit"), plain.loss("fit").detach())


def test_mistakes_are_sentences(pef_one, pef_two, tmp_path):
    samba.session.reset()
    Application({"serve": (Serve, None), "fit": (Fit, sgd)})
    with pytest.raises(SambaError, match="groups of optimizers are sgd, in the PEF they are adamw"):
        samba.session.init_multigraph_runtime(pef_one)
    samba.session.reset()
    Application({"serve": (Serve, None), "fit": (Fit, lambda model: adamw(model.net[3]))})
    with pytest.raises(SambaError, match=r"'adamw' does not train net.0.bias, net.0.weight, net.1"):
        samba.session.init_multigraph_runtime(pef_one)
    application = started(pef_two, TWO)
    with pytest.raises(SambaError, match="'serve' has no sections of type BCKWD; it has FWD"):
        application.run("serve", section_types=["FWD", "BCKWD"])
    with pytest.raises(SambaError, match="one of 'fit', 'match', 'serve'"):
        samba.session.run(given("x", "y"))
    samba.session.reset()
    net = network()
    model = Fit(net)
    for name in ("a", "b"):
        outputs = utils.trace_multigraph(model, given("x", "y"), sgd(model), trace_prefix=name)
        samba.session.add_graph(SambaGraph(given("x", "y"), outputs, name=name))
    with pytest.raises(SambaError, match=r"two optimizers have a state 'fit__net__0__weight__mom"):
        samba.session.compile_multigraph(config_dict={"output_folder": str(tmp_path)})
