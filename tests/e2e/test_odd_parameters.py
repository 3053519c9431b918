"""Parameters that a module reads by other names, shares, ties or freezes, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from near import assert_near, exactly
from safetensors.torch import save_file
from torch import fx, nn
from two_steps import require_two_steps_of_torch

import sambac
import sambarun

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
TRAIN = sambac.CompileOptions(train=True, optimizers=(sambac.SGD(lr=0.1),))

Change = Callable[[Any], object]


class _Model(nn.Module):
    """Two layers, between them `scale`; `make` ends the constructor, `change` begins a call."""

    def __init__(self, make: Change = bool, change: Change = bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.change = change
        self.held = [torch.ones(4)]
        make(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.change(self)
        return (self.b(self.a(x).tanh() * self.scale())).square().mean()

    def scale(self) -> torch.Tensor:
        return self.held[0].flatten()[:4]


class _Evaluating(_Model):
    """Has a scale where it evaluates alone."""

    def scale(self) -> torch.Tensor:
        return torch.ones(4) if self.training else super().scale()


class _Freezing(_Model):
    """Freezes a layer in training mode, and thaws it in evaluation mode."""

    def train(self, mode: bool = True) -> _Freezing:
        super().train(mode)
        self.a.requires_grad_(not mode)
        return self


def _hold(part: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    return lambda model: setattr(model, "held", [part(model.a.weight)])


def _assert_trains(module: nn.Module) -> None:
    """Require that `module` trains like in PyTorch, for two steps."""
    require_two_steps_of_torch(module, X)


def _assert_infers(module: nn.Module) -> None:
    """Require that `module` gives what it does in PyTorch, in the first call and in the next."""
    exact = exactly(module).eval()
    with sambarun.load(sambac.compile(module, inputs=(X,))) as executable:
        for _ in range(2):
            assert_near(executable.run({"x": X.numpy()})["output"], exact(exactly(X)))


def _assert_refused(module: nn.Module, message: str) -> None:
    before = {name: (tensor, tensor.requires_grad) for name, tensor in module.named_parameters()}
    with pytest.raises(sambac.CompileError, match=message):
        sambac.compile(module, TRAIN, inputs=(X,))
    after = {name: (tensor, tensor.requires_grad) for name, tensor in module.named_parameters()}
    assert before.keys() == after.keys()
    assert all(before[name][0] is after[name][0] for name in before)
    assert all(before[name][1] is after[name][1] for name in before)


@pytest.mark.parametrize("kind", [_Model, _Evaluating])
@pytest.mark.parametrize(
    "part",
    [lambda w: w, lambda w: w[0], lambda w: w.detach()[:, 1]],
    ids=["itself", "row", "column"],
)
def test_what_a_list_holds_of_a_parameter_is_refused_where_it_trains(
    kind: type[_Model], part: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    _assert_refused(kind(_hold(part)), r"reads its parameters a\.weight, .* a ParameterList")


def test_what_a_list_holds_of_a_parameter_is_read_where_nothing_trains() -> None:
    module = _Model()
    module.held = [module.a.weight.detach()[0]]
    with sambarun.load(sambac.compile(module, inputs=(X,))) as executable:
        found = executable.run({"x": X.numpy()})["output"]
    exact = exactly(module)
    exact.held = [exact.a.weight.detach()[0]]
    assert_near(found, exact(exactly(X)))


def test_an_exported_program_that_reads_a_parameter_from_a_list_is_refused() -> None:
    program = torch.export.export(_Model(_hold(lambda w: w)), (X,))
    with pytest.raises(sambac.CompileError, match=r"reads its parameters a\.weight"):
        sambac.compile(program, TRAIN)


class _Holding(_Model):
    """Holds a copy of a parameter, and a frozen one, in a list that registers nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Parameter(torch.arange(4.0), requires_grad=False)
        self.held = [self.a.weight.detach().clone(), self.frozen]

    def scale(self) -> torch.Tensor:
        return self.held[0][1] * self.held[1]


class _Registered(_Model):
    """Holds parameters in a list that registers them, one of them for the second time."""

    def __init__(self) -> None:
        super().__init__()
        self.held = nn.ParameterList([nn.Parameter(torch.arange(4.0)), self.a.weight])

    def scale(self) -> torch.Tensor:
        return self.held[0] * self.held[1][0]


@pytest.mark.parametrize("kind", [_Holding, _Registered])
def test_what_a_list_may_hold(kind: type[_Model]) -> None:
    _assert_trains(kind())


def _share_an_array(module: _Model) -> None:
    array = module.a.weight.detach().numpy()
    module.a.weight = nn.Parameter(torch.from_numpy(array))
    module.b.weight = nn.Parameter(torch.from_numpy(array))


@pytest.mark.parametrize(
    ("make", "others"),
    [
        (lambda m: setattr(m.b, "weight", nn.Parameter(m.a.weight.data)), r"a\.weight and b\."),
        (lambda m: setattr(m.b, "weight", nn.Parameter(m.a.weight.T)), r"a\.weight and b\."),
        (lambda m: setattr(m.b.weight, "data", m.a.weight.data), r"a\.weight and b\."),
        (lambda m: m.register_buffer("row", m.a.weight.detach()[0]), r"row and a\.weight"),
        (_share_an_array, r"a\.weight and b\."),
        (lambda m: m.register_buffer("row", m.a.weight.detach()[1], persistent=False), "and row"),
    ],
)
def test_states_in_one_memory_are_refused_where_one_trains(make: Change, others: str) -> None:
    module = _Model(make)
    _assert_refused(module, rf"has .*{others}.* in one memory.* with clone\(\)")
    _assert_infers(module)
    module.requires_grad_(False)
    module.a.bias = nn.Parameter(torch.zeros(4))
    _assert_trains(module)


@pytest.mark.parametrize("part", [lambda w: w, lambda w: w.T])
def test_those_without_content_are_too(part: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with torch.device("meta"):
        module = _Model(lambda m: setattr(m.b, "weight", nn.Parameter(part(m.a.weight.data))))
        module.held = []
        apart = _Model()
    module.scale = apart.scale = lambda: torch.ones(4)
    _assert_refused(module, r"has a\.weight and b\.weight in one memory.* with clone\(\)")
    sambac.compile(apart, TRAIN, inputs=(X,))


def test_parts_of_one_memory_that_do_not_overlap_train() -> None:
    def make(module: _Model) -> None:
        flat = torch.cat([module.a.weight.data.flatten(), module.b.weight.data.flatten()])
        module.a.weight.data, module.b.weight.data = flat[:16].view(4, 4), flat[16:].view(4, 4)

    _assert_trains(_Model(make))


def test_columns_of_one_memory_train() -> None:
    def make(module: _Model) -> None:
        both = torch.cat([module.a.weight.data, module.b.weight.data], 1)
        module.a.weight, module.b.weight = (nn.Parameter(part) for part in both.split(4, 1))

    _assert_trains(_Model(make))


def test_a_module_that_stays_in_evaluation_mode_trains_or_is_refused() -> None:
    class Evaluated(_Model):
        def train(self, mode: bool = True) -> Evaluated:
            super().train(False)
            return self

    _assert_trains(Evaluated().train())
    _assert_refused(Evaluated(change=_freeze).train(), "freezes or thaws")


def _tie(module: _Model) -> None:
    module.b.weight = module.a.weight


def _swap(module: _Model) -> None:
    module.a.weight, module.b.weight = module.b.weight, module.a.weight


def _tie_once_read(module: _Model) -> None:
    module.held = [module.b.weight[0]]
    _tie(module)


def _tie_once_asked(module: _Model) -> None:
    module.held = [torch.ones(4, dtype=module.b.weight.dtype)]
    _tie(module)


@pytest.mark.parametrize("change", [_tie, _tie_once_asked])
def test_parameters_become_one_in_forward_where_nothing_trains(change: Change) -> None:
    module = _Model(change=change)
    weight = module.b.weight
    _assert_infers(module)
    assert module.b.weight is weight
    _assert_refused(module, r"assigns to its parameters b\.weight, .* one in __init__")
    _assert_trains(_Model(_tie))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_swap, r"assigns to its parameters .*b\.weight"),
        (_tie_once_read, r"a later call of _Model does not do what .* from mul"),
    ],
)
def test_parameters_that_differ_in_the_second_call_are_refused(
    change: Change, message: str
) -> None:
    with pytest.raises(sambac.CompileError, match=message):
        sambac.compile(_Model(change=change), inputs=(X,))


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.a.weight.data.clamp_(-1, 1),
        lambda m: m.a.weight.detach().mul_(0.5),
        lambda m: m.a.weight.data[0].zero_(),
    ],
)
def test_parameters_that_a_call_writes_are_told_by_name(change: Change, train: bool) -> None:
    with pytest.raises(
        sambac.CompileError, match=r"_Model writes its parameters a\.weight; only an optimizer"
    ):
        sambac.compile(_Model(change=change), TRAIN if train else None, inputs=(X,))


def test_parameters_that_become_one_get_their_weights_in_the_run(tmp_path: Path) -> None:
    with torch.device("meta"):
        absent = _Model(change=_tie)
    absent.held = [torch.ones(4)]
    real = _Model(change=_tie)
    save_file(real.state_dict(), tmp_path / "weights.safetensors")
    with sambarun.load(sambac.compile(absent, inputs=(X,))) as executable:
        executable.load(tmp_path / "weights.safetensors")
        found = executable.run({"x": X.numpy()})["output"]
    assert_near(found, exactly(real)(exactly(X)))


def _freeze(module: _Model) -> None:
    module.a.requires_grad_(False)


def _freeze_for_a_while(module: _Model) -> None:
    module.a.weight.requires_grad = False
    module.held = [module.a(torch.ones(4)).tanh()]
    module.a.weight.requires_grad = True


def test_what_forward_freezes_is_refused_where_it_trains() -> None:
    message = r"freezes or thaws its parameters a\.weight in forward .* before compiling"
    module = _Model(change=_freeze)
    _assert_refused(module, message)
    _assert_refused(_Model(change=_freeze_for_a_while), message)
    _assert_refused(
        _Model(lambda m: m.a.requires_grad_(False), lambda m: m.a.requires_grad_()), message
    )
    _assert_infers(module)
    assert module.a.weight.requires_grad


def test_what_train_freezes_stays_frozen_and_is_thawed_afterwards() -> None:
    module = _Freezing().eval()
    _assert_trains(module)
    assert module.a.weight.requires_grad
    assert not module.training


def test_what_each_call_computes_from_parameters_may_stay_in_an_attribute() -> None:
    def change(module: _Model) -> None:
        module.norm = module.a.weight.norm()
        module.held = [module.norm * torch.ones(4)]

    module = _Model(lambda m: setattr(m, "norm", None), change)
    _assert_trains(module)
    assert module.norm is None


def test_a_hook_of_the_module_itself_may_assign_to_buffers() -> None:
    class Averaging(_Model):
        def scale(self) -> torch.Tensor:
            return self.mean

    def average(module: Averaging, args: tuple[torch.Tensor]) -> None:
        module.mean = module.mean * 0.5 + args[0].mean(0)

    module = Averaging(lambda m: m.register_buffer("mean", torch.ones(4)))
    module.register_forward_pre_hook(average)
    _assert_trains(module)


def test_a_graph_whose_hooks_would_be_lost_is_refused() -> None:
    graph = fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
    graph.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    with pytest.raises(sambac.CompileError, match="a graph with hooks, which would be lost"):
        sambac.compile(graph, inputs=(X,))
    with sambarun.load(sambac.compile(nn.Sequential(graph), inputs=(X,))) as executable:
        assert_near(executable.run({"input": X.numpy()})["output"], graph.double()(X.double()))


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("place", ["parameter", "buffer", "result"])
def test_what_is_assigned_to_data_is_refused(place: str, train: bool) -> None:
    class Assigning(_Model):
        def scale(self) -> torch.Tensor:
            result = self.held[0] * 1
            tensor = {"parameter": self.a.weight, "buffer": self.kept, "result": result}[place]
            tensor.data = tensor.detach() * 0.5
            return result * self.kept

    module = Assigning(lambda m: m.register_buffer("kept", torch.ones(4)))
    with pytest.raises(sambac.CompileError, match=r"Assigning assigns to \.data .* with copy_\(\)"):
        sambac.compile(module, sambac.CompileOptions(train=train), inputs=(X,))


def test_what_is_assigned_to_data_may_be_what_is_there() -> None:
    class Assigning(_Model):
        def scale(self) -> torch.Tensor:
            for tensor in (self.a.weight, self.kept):
                tensor.data = tensor.data
            return self.kept

    _assert_trains(Assigning(lambda m: m.register_buffer("kept", torch.full((4,), 2.0))))


def test_a_layer_that_lists_its_weights_anew_trains() -> None:
    class Recurrent(_Model):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x.unsqueeze(1))[0].square().mean()

    _assert_trains(Recurrent(lambda m: setattr(m, "layer", nn.GRU(4, 4, batch_first=True))))


@pytest.mark.parametrize("train", [False, True])
def test_what_is_written_without_being_registered_is_refused_with_the_cure(train: bool) -> None:
    options = sambac.CompileOptions(train=train)
    with pytest.raises(
        sambac.CompileError, match=r"writes a tensor that is not registered; register_buffer\(\)"
    ):
        sambac.compile(_Model(change=lambda m: m.held[0].add_(1)), options, inputs=(X,))
    shared = _Model(lambda m: m.register_buffer("kept", m.held[0]), lambda m: m.kept.add_(1))
    with pytest.raises(sambac.CompileError, match=r"buffer that shares memory .* keep a copy"):
        sambac.compile(shared, options, inputs=(X,))
