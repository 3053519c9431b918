"""A graph is cut into stages by what its outputs are for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pef.program import SectionType
from sambac.planning.stages import split
from sambac.planning.view import DataflowView, ValueRole

FWD, BCKWD, OPT, ZEROGRAD = (
    SectionType.FWD,
    SectionType.BCKWD,
    SectionType.OPT,
    SectionType.ZEROGRAD,
)
STEP = """
    mul: MatMul(x, p) -> y
    act: Relu(y) -> loss
    mask: HardSigmoid(loss) -> m
    grad: Mul(seed, m) -> g
    gate: Neg(rate) -> r
    sgd: GatedAdd(p, g, r) -> p_next
"""
STAGES = {"loss": FWD, "g": BCKWD, "p_next": OPT}


@pytest.fixture
def stages(make_view: Callable[..., DataflowView]) -> tuple[DataflowView, ...]:
    return split(make_view(STEP, outputs="loss g p_next"), STAGES)


def test_an_operator_belongs_to_the_first_stage_that_needs_it(
    stages: tuple[DataflowView, ...],
) -> None:
    assert [list(stage.ops) for stage in stages] == [
        ["mul", "act"],
        ["mask", "grad"],
        ["gate", "sgd"],
    ]
    kinds = [{op.section_type for op in stage.ops.values()} for stage in stages]
    assert kinds == [{FWD}, {BCKWD}, {OPT}]


def test_what_crosses_is_an_output_here_and_an_input_there(
    stages: tuple[DataflowView, ...],
) -> None:
    forward, backward, update = stages
    assert forward.outputs == ("loss",)
    assert backward.inputs == ("loss", "seed")
    assert backward.values["loss"].role is ValueRole.INPUT
    assert forward.values["loss"].role is ValueRole.ACTIVATION
    assert backward.outputs == ("g",)
    assert update.inputs == ("rate", "p", "g")


def test_an_activation_read_later_is_an_output_of_its_stage(
    make_view: Callable[..., DataflowView],
) -> None:
    view = make_view("a: Exp(x) -> y\n b: Neg(y) -> loss\n c: Mul(seed, y) -> g", outputs="loss g")
    forward, backward = split(view, {"loss": FWD, "g": BCKWD})
    assert set(forward.outputs) == {"y", "loss"}
    assert set(backward.inputs) == {"seed", "y"}


def test_a_clone_is_in_every_stage_that_reads_it(make_view: Callable[..., DataflowView]) -> None:
    view = make_view(
        "k*: ConstantOfShape(w0) -> one\n a: Add(x, one) -> loss\n b: Mul(seed, one) -> g",
        outputs="loss g",
    )
    forward, backward = split(view, {"loss": FWD, "g": BCKWD})
    assert list(forward.ops) == ["k", "a"]
    assert list(backward.ops) == ["k", "b"]
    assert "one" not in forward.outputs


def test_what_resets_comes_first(make_view: Callable[..., DataflowView]) -> None:
    view = make_view(
        "a: Exp(x) -> loss\n b: Mul(seed, loss) -> g\n z: Sub(old, old) -> zero",
        outputs="loss g zero",
    )
    kinds = [
        next(iter(stage.ops.values())).section_type
        for stage in split(view, {"loss": FWD, "g": BCKWD, "zero": ZEROGRAD})
    ]
    assert kinds == [ZEROGRAD, FWD, BCKWD]
