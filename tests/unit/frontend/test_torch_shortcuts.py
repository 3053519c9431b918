"""What the exporter is spared changes nothing of what it makes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from loaded_parts import parts
from torch import nn
from torch.nn import functional
from torch.onnx._internal.exporter import _fx_passes

from sambac.frontend.torch import export, loading
from sambac.frontend.torch.loading import load_torch
from sambac.options import CompileOptions


class Halves(nn.Module):
    """Results of several kinds: of an operator with two, of a view, of a number."""

    def forward(self, x):
        low, high = torch.chunk(x, 2, dim=-1)
        best = low.max(dim=-1)
        return best.values + high.t().sum() * x.shape[0], best.indices


class Gates(nn.Module):
    """Stops, an unused operator, and constants, some of which are equal."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x):
        x.exp()
        open_ = torch.sigmoid(self.inner(x)).detach()
        fixed = torch.tensor([1.0, 2.0, 3.0, 1.0, 2.0, 3.0])
        return ((x * 1 + 0) * open_ * fixed + torch.arange(6) * fixed).sum()


class Plain(nn.Module):
    """What is the same in both modes, and has nothing to decompose: views, pairs, integers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.unused = nn.Parameter(torch.ones(2))
        self.register_buffer("scale", torch.ones(6))

    def forward(self, x):
        low, high = (self.inner(x) * self.scale).t().split(3)
        best = torch.topk(
            low.permute(1, 0).sin().reshape(2, -1).unflatten(1, (2, 3)).flatten(0, 1), 2
        )
        dropped = functional.dropout(functional.dropout(low.exp(), 0.5, True), 0.5, False)
        mixed = torch.einsum("ij,kj->ik", best.values, high[:2].t()[:, :2])
        return {
            "mixed": mixed,
            "at": best.indices,
            "same": low.unsqueeze(0).squeeze(0),
            "dropped": dropped,
        }


NETWORKS = {
    "plain": (Plain(), torch.ones(4, 6)),
    "layers": (
        nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(), nn.Linear(8, 6)),
        torch.ones(4, 6),
    ),
    "pictures": (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
        torch.ones(2, 3, 8, 8),
    ),
    "attention": (nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), torch.ones(2, 3, 8)),
    "halves": (Halves(), torch.ones(4, 6)),
    "gates": (Gates(), torch.ones(4, 6)),
}


@contextmanager
def at_length() -> Iterator[None]:
    yield


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The programs that the exporter recorded once more."""
    programs: list[object] = []
    decompose = _fx_passes.decompose_with_registry

    def decompose_with_registry(program, registry):
        programs.append(program)
        return decompose(program, registry)

    monkeypatch.setattr(_fx_passes, "decompose_with_registry", decompose_with_registry)
    return programs


@pytest.mark.parametrize("name", NETWORKS)
def test_models_are_as_the_exporter_makes_them_at_length(
    name: str, recorded: list[object], monkeypatch: pytest.MonkeyPatch
):
    module, inputs = NETWORKS[name]
    torch.manual_seed(0)
    found = parts(module, inputs)
    assert not recorded
    monkeypatch.setattr(export, "decomposed_once", at_length)
    monkeypatch.setattr(export, "rules_where_they_begin", at_length)
    monkeypatch.setattr(export, "promoted_where_types_differ", at_length)
    monkeypatch.setattr("sambac.frontend.torch.programs.functional.transcribed", lambda *_: None)
    monkeypatch.setattr(loading, "is_for_both", lambda *_: False)
    assert found == parts(module, inputs)
    assert recorded


class Choice(nn.Module):
    """A choice of two functions."""

    def forward(self, x):
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


def test_open_sizes_and_choices_are_recorded_once_more(
    recorded: list[object],
):
    rows = torch.export.Dim("rows", min=2)
    load_torch(nn.Linear(6, 3), CompileOptions(), (torch.ones(4, 6),), dynamic_shapes=({0: rows},))
    assert len(recorded) == 1
    load_torch(Choice(), CompileOptions(), torch.ones(2))
    assert len(recorded) == 2


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is recorded: modules by torch.export, and programs once more."""
    done: list[str] = []
    capture, decompose = loading.capture, torch.export.ExportedProgram.run_decompositions

    def captured(*args, training, **others):
        done.append("trains" if training else "evaluates")
        return capture(*args, training=training, **others)

    def decomposed(program, table):
        done.append("again")
        return decompose(program, table)

    monkeypatch.setattr(loading, "capture", captured)
    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", decomposed)
    return done


class Asks(nn.Module):
    """Adds 1 while it trains, 2 while it evaluates, and learns of it as `how` says."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.shift, self.others = how, 1.0, [nn.Dropout()]
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("calls", torch.zeros(()))

    def train(self, mode: bool = True):
        if self.how == "as it changes":
            self.shift = 1.0 if mode else 2.0
        return super().train(mode)

    def forward(self, x):
        if self.how == "as it is called":
            return x * self.weight + (1.0 if self.training else 2.0)
        if self.how == "in a branch":
            return torch.cond(x.sum() > 0, self.shifted, lambda y: y - 1, (x * self.weight,))
        if self.how == "counts":
            self.calls += 1
        return x * self.weight + self.shift

    def shifted(self, x):
        return x + (1.0 if self.training else 2.0)


class Own(Asks):
    training = True

    def __getattribute__(self, name):
        return vars(self)[name] if name == "training" else super().__getattribute__(name)


class Unasked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return x * self.weight + 1.0


class InItsDict(Unasked):
    """Gets to its mode past the attribute."""

    def forward(self, x):
        return super().forward(x) * (1.0 if self.__dict__["training"] else 2.0)


def factor_of(module: nn.Module) -> float:
    return 1.0 if vars(module).get("training") else 2.0


class InAFunction(Unasked):
    def forward(self, x):
        return super().forward(x) * factor_of(self)


ONCE = {
    "unasked": (Unasked(), ["trains"]),
    "plain": (Plain(), ["trains"]),
    "as it is called": (Asks("as it is called"), ["trains", "evaluates"]),
    "as it changes": (Asks("as it changes"), ["trains", "evaluates"]),
    "in its dict": (InItsDict(), ["trains", "evaluates"]),
    "in a function": (InAFunction(), ["trains", "evaluates"]),
    "in a branch": (Asks("in a branch"), ["trains", "evaluates", *["again"] * 4]),
    "counts": (Asks("counts"), ["trains", "evaluates"]),
    "own attribute": (Own("as it is called"), ["trains", "evaluates"]),
    "inside": (nn.Sequential(Unasked(), nn.Dropout(0.0)), ["trains", "evaluates", "again"]),
    "frozen": (nn.Sequential(Unasked(), Asks("as it is called").eval()), ["trains", "evaluates"]),
}


@pytest.mark.parametrize("name", ONCE)
def test_what_never_asks_for_its_mode_is_recorded_once(name: str, recordings: list[str]):
    module, wanted = ONCE[name]
    inputs = torch.ones(4, 6) if name == "plain" else torch.ones(2)
    load_torch(module, CompileOptions(train=True), inputs)
    assert recordings == wanted
    assert not hasattr(nn.Module, "training")
