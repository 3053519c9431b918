"""An operator that is expanded alone becomes what it does where its whole program is recorded."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from loaded_parts import parts
from torch import fx, nn
from torch.nn import functional as F
from torch.onnx._internal.exporter import _fx_passes

from sambac.frontend.torch import loading
from sambac.frontend.torch.programs import expansion

X = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4) / 12 - 1
IMAGES = torch.arange(96, dtype=torch.float32).reshape(2, 3, 4, 4) / 48 - 1


class Of(nn.Module):
    """A function of one tensor, between two others."""

    def __init__(self, function: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.function = function
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.function(x * self.scale), self.scale.sum()


FUNCTIONS = {
    "square": (torch.square, X),
    "twice": (lambda x: torch.square(x).sum() + torch.square(x + 1).mean(), X),
    "broadcast": (lambda x: torch.broadcast_tensors(x, x[:1]), X),
    "broadcast alike": (lambda x: torch.broadcast_tensors(x, x + 1), X),
    "alike and more": (lambda x: F.mse_loss(x, x.detach() + 1) + torch.square(x).sum(), X),
    "meshgrid": (lambda x: torch.meshgrid(x[0, 0], x[0, 1], indexing="ij"), X),
    "mse_loss": (lambda x: F.mse_loss(x, x.detach()[:1]), X),
    "l1_loss": (lambda x: F.l1_loss(x, x.detach()), X),
    "kl_div": (lambda x: F.kl_div(x.log_softmax(-1), x.softmax(-1), reduction="batchmean"), X),
    "pooled to four": (lambda x: F.adaptive_avg_pool2d(x, 2), IMAGES),
    "argsort": (lambda x: x.argsort(dim=1, descending=True), X),
    "outer": (lambda x: torch.outer(x[0, 0], x[1, 0]), X),
    "flipud": (torch.flipud, X),
    "quantile": (lambda x: x.quantile(0.3, dim=1), X),
    "pooled": (lambda x: F.adaptive_avg_pool1d(x, 2), X),
    "same": (lambda x: F.conv2d(x, torch.ones(2, 3, 3, 3), padding="same"), IMAGES),
    "transposed": (lambda x: F.conv_transpose2d(x, torch.ones(3, 2, 2, 2), stride=2), IMAGES),
    "taken": (lambda x: torch.take_along_dim(x, x.argmax(1, keepdim=True), 1), X),
    "triplet": (lambda x: F.triplet_margin_loss(x[0], x[1], x[1].flip(0)), X),
    "similar": (lambda x: F.cosine_similarity(x[0], x[1]), X),
    "two results": (lambda x: torch.slogdet(x[0, :1, :1]), X),
    "whole": (lambda x: torch.square((x * 4).to(torch.int64)), X),
    "truth": (lambda x: torch.square(x > 0), X),
    "tensordot": (lambda x: torch.tensordot(x, x, dims=([0, 1], [0, 1])), X),
    "norm": (lambda x: torch.linalg.norm(x[0]), X),
    "returned": (lambda x: x.negative(), X),
}


def unnumbered(found: list[str]) -> list[str]:
    """Leave out what tells values of one operator apart: a recording numbers all of them anew."""
    return [re.sub(r"_\d+\b", "", part) for part in found]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_models_are_as_the_exporter_makes_them(name: str, monkeypatch: pytest.MonkeyPatch):
    function, x = FUNCTIONS[name]
    recorded: list[object] = []
    decompose = _fx_passes.decompose_with_registry

    def decompose_with_registry(program, registry):
        recorded.append(program)
        return decompose(program, registry)

    monkeypatch.setattr(_fx_passes, "decompose_with_registry", decompose_with_registry)
    monkeypatch.setattr(loading, "is_for_both", lambda *_: False)
    found = unnumbered(parts(Of(function), x))
    assert not recorded
    monkeypatch.setattr(
        "sambac.frontend.torch.programs.expansion._expanded", lambda program, _: program
    )
    assert found == unnumbered(parts(Of(function), x))
    assert recorded


def called(value: object, x: torch.Tensor) -> expansion._Call:
    graph = fx.Graph()
    tensor = graph.placeholder("x")
    tensor.meta["val"] = x
    return expansion._Call.of(graph.call_function(torch.ops.aten.fill.Scalar, (tensor, value)))


def test_calls_are_alike_that_are_spelled_alike_on_tensors_of_one_form() -> None:
    x = torch.ones(2, 3)
    assert called(2.0, x) == called(2.0, torch.zeros(2, 3))
    assert len({called(value, x) for value in (0, False, 0.0, -0.0)}) == 4
    others = [x.double(), x[:1], torch.ones(3, 2).t(), x.to("meta"), x.clone().requires_grad_()]
    assert len({called(1, one) for one in (x, *others)}) == 1 + len(others)
    before = called(1, x)
    torch.set_default_dtype(torch.float64)
    try:
        assert called(1, x) != before
    finally:
        torch.set_default_dtype(torch.float32)


def test_tensors_stay_on_their_device() -> None:
    form = expansion._TensorForm.of(torch.ones(2, 3, device="meta").t())
    assert form.made().device.type == "meta"
    assert form.made().stride() == (1, 3)
