"""A state may be overwritten while it is updated: every formula, as the planner demands it."""

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir
import pytest
from step_machine import StepMachine

from pef.program import SectionType
from sambac.graph.nodes import static_shape
from sambac.optimizers import LAMB, LARS, SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop
from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.training.step import StepOptions

OPTIMIZERS = (
    SGD(),
    SGD(momentum=0.9, dampening=0.1, weight_decay=0.1),
    SGD(momentum=0.9, nesterov=True, weight_decay=0.1),
    Adam(weight_decay=0.1, amsgrad=True),
    AdamW(amsgrad=True),
    RMSprop(centered=True, momentum=0.9, weight_decay=0.1),
    Adagrad(lr_decay=0.1, weight_decay=0.1),
    Adam(weight_decay=0.1, bias_correction=False),
    LAMB(weight_decay=0.1),
    LAMB(weight_decay=0.1, bias_correction=False, min_trust=0.1, max_trust=10.0),
    LARS(weight_decay=0.1),
)
ELEMENTWISE = {"Add", "Sub", "Mul", "Max", "GatedAdd", "Where"}
WEIGHTS = {
    "w": np.ones((4, 3), "f"),
    "b": np.ones(3, "f"),
    "s": np.ones((), "d"),
    "in rows": np.ones((2048, 512), "f"),
}


@pytest.mark.parametrize("pack", [False, True], ids=["apart", "packed"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_only_the_writer_and_what_it_needs_reads_a_state(optimizer: Optimizer, pack: bool) -> None:
    asked = StepOptions((optimizer,), max_grad_norm=1.0, accumulate=True, pack=pack)
    machine = StepMachine(WEIGHTS, asked)
    graph = machine.model.graph
    values = {str(value.name): value for value in (*graph.inputs, *graph.outputs)}
    assert len(machine.parts.updates) > len(WEIGHTS)
    for new, old in machine.parts.updates.items():
        if machine.parts.stages[new] == SectionType.ZEROGRAD:
            continue
        writer = values[new].producer()
        assert writer is not None
        assert writer.op_type in ELEMENTWISE
        assert values[new].shape == values[old].shape
        assert values[new].dtype == values[old].dtype
        stage = machine.parts.stages[new]
        for reader in _readers(values[old], stage, machine):
            assert reader is writer or reader in set(_ancestors(writer)), (old, reader)


def _readers(value: ir.Value, stage: SectionType, machine: StepMachine) -> list[ir.Node]:
    """Return the nodes of `stage` that read `value`: those of other stages run before or after."""
    outputs = [
        output
        for output in machine.model.graph.outputs
        if machine.parts.stages[str(output.name)] == stage
    ]
    inside = {node for out in outputs for node in _up_from(out)}
    return [node for node in value.consumers() if node in inside]


def _up_from(value: ir.Value) -> Iterator[ir.Node]:
    producer = value.producer()
    if producer is not None:
        yield producer
        yield from _ancestors(producer)


def _ancestors(node: ir.Node) -> Iterator[ir.Node]:
    for value in node.inputs:
        producer = None if value is None else value.producer()
        if producer is not None:
            yield producer
            yield from _ancestors(producer)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_shapes_stay_known_when_inferred_again(optimizer: Optimizer) -> None:
    model = StepMachine(WEIGHTS, StepOptions((optimizer,), max_grad_norm=1.0)).model
    InferShapes()(model)
    values = [value for node in model.graph for value in node.outputs]
    assert [value.name for value in values if static_shape(value) is None] == []


def test_terms_are_argins_whatever_they_are_and_what_is_left_out_is_none() -> None:
    machine = StepMachine(WEIGHTS, StepOptions((SGD(), AdamW(params=("b",), weight_decay=0.0))))
    adam = ("lr", "weight_decay", "beta1", "beta2", "eps")
    wanted = {"sgd.lr", "sgd.momentum", "sgd.weight_decay", *(f"adamw.{name}" for name in adam)}
    assert {argin.name for argin in machine.parts.argins} == wanted
    assert machine.parts.terms == {
        "sgd.momentum": "momentum",
        "sgd.weight_decay": "weight_decay",
        "adamw.weight_decay": "weight_decay",
    }
    assert "sgd__step" not in machine.parts.states
    assert machine.parts.updates["adamw__step__next"] == "adamw__step"


def test_scalars_are_made_once_for_all_parameters() -> None:
    weights = {f"w{index}": np.ones(3, "f") for index in range(8)}
    machine = StepMachine(weights, StepOptions((AdamW(),), pack=False))
    powers = [node for node in machine.model.graph if node.op_type == "Pow"]
    assert len(powers) == 2
