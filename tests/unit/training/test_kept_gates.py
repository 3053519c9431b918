"""Which recurrent layers of a training program keep their gates, and which are a kernel."""

from __future__ import annotations

from typing import Any

import pytest

from sambac import SGD, CompileOptions
from sambac.graph.nodes import all_nodes, static_shape
from sambac.number_rules import NumberRule
from sambac.pipeline import lower_model

torch = pytest.importorskip("torch")


class Network(torch.nn.Module):
    """Two layers; the gradients are those of the last states."""

    def __init__(self, op: str) -> None:
        super().__init__()
        self.cells = {"LSTM": torch.nn.LSTM, "GRU": torch.nn.GRU}[op](4, 3, num_layers=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, last = self.cells(x)
        return last[0].square().mean() + last[1].square().mean()


def kernels(op: str, **options: Any) -> list[int]:
    """How many operators `op` the training and the evaluation graph have."""
    _, lowered = lower_model(
        Network(op),
        CompileOptions(train=True, optimizers=(SGD(lr=0.1),), **options),
        lambda stage: None,
        inputs=(torch.ones(5, 2, 4),),
    )
    graphs = [graph.model.graph for graph in lowered.graphs]
    return [sum(node.op_type == op for node in all_nodes(graph)) for graph in graphs]


@pytest.mark.parametrize(("op", "level"), [("LSTM", "O0"), ("LSTM", "O3"), ("GRU", "O3")])
def test_a_step_keeps_gates_and_an_evaluation_has_the_kernel(op: str, level: str) -> None:
    assert kernels(op, level=level) == [0, 2]


@pytest.mark.parametrize("op", ["LSTM", "GRU"])
@pytest.mark.parametrize(
    "options",
    [
        {"recompute": True},
        {"precision": "mixed"},
        {"number_rules": (NumberRule(op_type=("MatMul",), output="Float16_b"),)},
    ],
    ids=["recompute", "mixed", "number rules"],
)
def test_the_kernel_stays_where_gates_are_computed_anew(op: str, options: dict[str, Any]) -> None:
    assert kernels(op, **options) == [2, 2]


def test_layers_before_all_that_is_trained_have_the_kernel() -> None:
    assert kernels("LSTM", freeze=("cells.*_l0",)) == [1, 2]


@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_sizes_of_all_that_is_kept_are_known(op: str) -> None:
    """Plans of memory and estimates are made of them."""
    _, lowered = lower_model(
        Network(op),
        CompileOptions(train=True, optimizers=(SGD(lr=0.1),)),
        lambda stage: None,
        inputs=(torch.ones(5, 2, 4),),
    )
    nodes = [node for node in all_nodes(lowered.graphs[0].model.graph) if node.outputs]
    open_ = [v.name for node in nodes for v in node.outputs if v.name and static_shape(v) is None]
    assert open_ == []
