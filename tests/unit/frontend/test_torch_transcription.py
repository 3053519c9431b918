"""What is written out is what recording a program once more gives."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sambac.frontend.torch.loading import load_torch
from sambac.frontend.torch.patching import quiet
from sambac.frontend.torch.programs import functional
from sambac.options import CompileOptions

X = torch.arange(120, dtype=torch.float32).reshape(2, 3, 4, 5) / 60 - 1
WHOLE = torch.arange(12).reshape(2, 6)


class Of(nn.Module):
    """A function of one tensor and a parameter of one element."""

    def __init__(self, function: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.function = function
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.function(x * self.scale if x.is_floating_point() else x), self.scale.sum()


class Keeps(nn.Module):
    """Buffers that are read, written and read again, and a BatchNorm that runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(5))
        self.register_buffer("calls", torch.tensor(0))
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x):
        before = self.sums * 2
        self.calls.add_(1)
        self.sums.add_(x.detach().mean((0, 1, 2)))
        y = self.norm(self.norm(x)) * self.sums
        self.sums.mul_(0.5)
        return y + self.sums + self.calls + before


def siblings(x):
    y = x + 1
    first = y.add_(x)
    y.mul_(x)
    return first + 1


def reads_between(x):
    y = x + 1
    before = y * 2
    y.relu_().sub_(0.5)
    return before + y


def writes_two(x):
    y = x * 0.5
    w = y + x
    y.add_(w)
    u = y.sigmoid()
    w.tanh_()
    return u * w


def activations(*names: str) -> nn.Module:
    kinds = [getattr(nn, name)(inplace=True) for name in names]
    return nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), *kinds)


def stacked(x):
    low, high = x.chunk(2, dim=-2)
    return torch.cat([low, high.movedim(0, 1).transpose(0, 1)]).narrow(0, 1, 2)


FUNCTIONS = {
    "a copy is viewed": (lambda x: x.transpose(1, 2).reshape(2, -1), X),
    "what lies apart is viewed": (lambda x: x.transpose(1, 2).reshape(2, 2, 2, 3, 5), X),
    "nothing to flatten": (lambda x: x.flatten(1, 1) + 1, X),
    "gaps": (lambda x: x.transpose(1, 2).contiguous().flatten(1), X),
    "no gaps": (lambda x: x.contiguous() + 1, X),
    "types": (lambda x: x.double().float() * x.float() + x.to("cpu", torch.float32), X),
    "whole numbers": (lambda x: x.float() * x.long() + x.bool(), WHOLE),
    "parts": (stacked, X),
    "as others are": (lambda x: x[:1].expand_as(x).flatten().view_as(x), X),
    "differences": (lambda x: torch.diff(x, prepend=x[:, :1] - 1) != 1, WHOLE),
    "differences around": (lambda x: x.diff(dim=1, prepend=x[:, :1], append=x[:, :1]), X),
    "choices": (lambda x: (x > 2) & (x < 5) | (x > 9), WHOLE),
    "both": (lambda x: torch.min(x, x + 1) * torch.max(x, -x), X),
    "a constant": (lambda x: x * torch.tensor([1.0, 2, 3, 4, 5]) + torch.tensor(2.0), X),
    "nobody reads it": (lambda x: (x.exp().sum(), x + 1)[1], X),
    "pooled": (lambda x: F.adaptive_avg_pool2d(x, 1), X),
    "siblings": (siblings, X),
    "read between": (reads_between, X),
    "two are written": (writes_two, X),
    "by itself": (lambda x: (y := x + 1).mul_(y) + 1, X),
    "whole numbers in place": (lambda x: (x + 1).add_(2).mul_(x) + 1, WHOLE),
}
MODULES = {
    **{name: (Of(function), x) for name, (function, x) in FUNCTIONS.items()},
    "keeps": (Keeps(), X),
    "in place": (activations("ReLU", "Hardswish", "ReLU6", "SiLU", "LeakyReLU", "ELU"), X),
    "without weights": (nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3, affine=False)), X),
    "recurrent": (nn.LSTM(5, 4, 2), X[0]),
    "dropped": (nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.3), nn.Dropout(0.3)), X),
}

UNKNOWN = {
    "a view is read": (lambda x: ((y := x + 1).view(-1), y.mul_(x))[0] * 2, X),
    "a view of what was written is read": (
        lambda x: ((y := (x + 1).relu_()).view(-1), y.mul_(x))[0] * 2,
        X,
    ),
    "a view is written": (lambda x: ((y := x + 1), y[0].mul_(x[0]))[0] * 2, X),
    "another type": (lambda x: (x > 0).float().mul_(x > 1) * 2, X),
    "an input is written": (lambda x: x.mul_(2) + 1, WHOLE),
    "an input is a result": (lambda x: x.long(), WHOLE),
    "a number has no axes": (lambda x: x.sum().movedim(0, 0), X),
    "no elements": (lambda x: x[:0].reshape(0, 60), X),
}


def said(module: nn.Module, x: torch.Tensor) -> list[str]:
    """All that a model says as it trains and as it evaluates, in order."""
    source = load_torch(module, CompileOptions(train=True), x)
    graphs = [one.graph for one in (source.model, source.evaluation) if one is not None]
    return [
        str(part)
        for graph in graphs
        for part in (
            *(*graph.inputs, *graph.initializers.values(), *graph.outputs),
            *ir.traversal.RecursiveGraphIterator(graph),
        )
    ]


def is_known(module: nn.Module, x: torch.Tensor, spelled: dict[object, object]) -> bool:
    with quiet():
        program = torch.export.export(module, (x,))
        return functional.transcribed(program, spelled) is not None


@pytest.mark.parametrize("name", MODULES)
def test_programs_are_as_recording_makes_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = MODULES[name]
    with monkeypatch.context() as patch:
        patch.setattr(torch.export.ExportedProgram, "run_decompositions", None)
        found = said(module, x)
    monkeypatch.setattr(functional, "transcribed", lambda *_: None)
    assert found == said(module, x)


def test_views_of_what_was_written_are_recorded_by_another_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = Of(lambda x: (x + 1).relu_().sub_(x).flatten(1) * 2)
    found = said(module, X)
    monkeypatch.setattr(functional, "transcribed", lambda *_: None)
    assert found == [text.replace("view_1", "view") for text in said(module, X)]


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_known_is_recorded(name: str) -> None:
    function, x = UNKNOWN[name]
    assert not is_known(Of(function), x.clone(), {})


def test_what_is_spelled_out_is_recorded() -> None:
    assert is_known(Of(torch.exp), X, {})
    assert not is_known(Of(torch.exp), X, {torch.ops.aten.exp.default: torch.exp})


def test_what_is_called_by_other_names_than_a_recording_has_is_recorded() -> None:
    with quiet():
        program = torch.export.export(Of(lambda x: x.narrow(0, 0, 1)), (X,))
    [node] = program.graph.find_nodes(op="call_function", target=torch.ops.aten.narrow.default)
    node.args, node.kwargs = node.args[:1], {"dim": 0, "start": 0, "length": 1}
    assert functional.transcribed(program, {}) is None


def test_a_dropout_in_place_is_one_whose_rate_is_known() -> None:
    module = nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.3, inplace=True))
    kinds = [node.op_type for node in load_torch(module, CompileOptions(train=True), X).model.graph]
    assert "Dropout" in kinds
