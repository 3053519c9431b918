"""What the exporter is spared changes nothing of what it makes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import onnx_ir as ir
import pytest
import torch
from torch import nn
from torch.onnx._internal.exporter import _fx_passes

from sambac.frontend.torch import export
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


NETWORKS = {
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


def parts(module: nn.Module, inputs: object) -> list[str]:
    """All that the model of `module` has, where it trains, in order."""
    graph = load_torch(module, CompileOptions(train=True), inputs).model.graph
    values = (*graph.inputs, *graph.initializers.values(), *graph.outputs)
    contents = [value.const_value.numpy().tobytes() for value in graph.initializers.values()]
    nodes = list(ir.traversal.RecursiveGraphIterator(graph))
    said = [dict(node.metadata_props) for node in nodes]
    return [str(part) for part in (*values, *contents, *nodes, *said)]


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
    assert found == parts(module, inputs)
    assert recorded


def test_open_sizes_and_operators_without_a_translation_are_recorded_once_more(
    recorded: list[object],
):
    rows = torch.export.Dim("rows", min=2)
    load_torch(nn.Linear(6, 3), CompileOptions(), (torch.ones(4, 6),), dynamic_shapes=({0: rows},))
    assert len(recorded) == 1
    load_torch(nn.AdaptiveAvgPool2d(1), CompileOptions(), torch.ones(1, 2, 4, 4))
    assert len(recorded) == 2
