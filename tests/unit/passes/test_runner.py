"""The run of passes: which run, what is verified, and what those see who watch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir
import pytest

from sambac.errors import InternalError
from sambac.passes.base import (
    CONSTANT_OUTPUTS,
    FUNCTIONS,
    OUT_OF_ORDER,
    SUBGRAPHS,
    WITHOUT_ELEMENTS,
    WITHOUT_KERNEL,
    Pass,
)
from sambac.passes.legalize.check_kernels import CheckKernels
from sambac.passes.runner import Contents, PassContext

RELU = """<ir_version: 8, opset_import: ["" : 17]>
net (float[2] x) => (float[2] y) { y = Relu (x) }"""
BRANCHES = """<ir_version: 8, opset_import: ["" : 17]>
net (float[2] x, bool c) => (float[2] y) {
  y = If (c) <
    then_branch = yes () => (float[2] a) { a = Exp (x) },
    else_branch = no () => (float[2] b) { b = Neg (x) }
  >
}"""
CALLING = """<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
net (float[2] x) => (float[2] y) { y = own.twice (x) }
<domain: "own", opset_import: ["" : 17]> twice (v) => (w) { w = Add (v, v) }"""


HAVING = {
    FUNCTIONS: CALLING,
    SUBGRAPHS: BRANCHES,
    CONSTANT_OUTPUTS: """<ir_version: 8, opset_import: ["" : 17]>
net (float[2] x) => (float[2] y, string[1] w) <string[1] w = {"text"}> { y = Relu (x) }""",
    OUT_OF_ORDER: """<ir_version: 8, opset_import: ["" : 17]>
net (float[2] x) => (float[2] y) { y = Relu (t) t = Relu (x) }""",
    WITHOUT_KERNEL: """<ir_version: 8, opset_import: ["" : 17]>
net (uint16[2] x) => (uint16[2] y) { y = Max (x, x) }""",
    WITHOUT_ELEMENTS: """<ir_version: 8, opset_import: ["" : 17]>
net (float[2,0] x) => (float[2,0] y) { y = Relu (x) }""",
}


@dataclass(frozen=True)
class Renaming(Pass):
    """Replaces operators of one type by those of another."""

    name: ClassVar[str] = "renaming"
    old: str
    new: str

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        found = [node for node in model.graph if node.op_type == self.old]
        for node in found:
            node.op_type = self.new
        return ir.passes.PassResult(model, modified=bool(found))


@dataclass(frozen=True)
class OnTanh(Renaming):
    name: ClassVar[str] = "on_tanh"
    operators: ClassVar[frozenset[str] | None] = frozenset({"Tanh"})


@dataclass(frozen=True)
class Breaking(Pass):
    name: ClassVar[str] = "breaking"

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        next(iter(model.graph)).name = ""
        return ir.passes.PassResult(model, modified=True)


def test_a_model_has_the_operators_of_its_branches_and_functions() -> None:
    assert Contents(ir.from_onnx_text(RELU)).operators == {"Relu"}
    assert Contents(ir.from_onnx_text(BRANCHES)).operators == {"If", "Exp", "Neg"}
    assert Contents(ir.from_onnx_text(CALLING)).operators == {"twice", "Add"}


@pytest.mark.parametrize("what", HAVING)
def test_a_pass_concerns_what_a_model_has(what: str) -> None:
    @dataclass(frozen=True)
    class OnThat(Renaming):
        operators: ClassVar[frozenset[str] | None] = frozenset({what})

    step, relu, having = OnThat("", ""), ir.from_onnx_text(RELU), ir.from_onnx_text(HAVING[what])
    assert not Contents(relu).concern(step)
    assert Contents(having).concern(step)


def test_a_value_without_a_type_may_be_of_an_operator_without_a_kernel() -> None:
    model = ir.from_onnx_text(RELU)
    model.graph.node(0).outputs[0].type = None
    assert Contents(model).concern(CheckKernels())


def test_a_pass_runs_once_what_concerns_it_is_there(legalized: Callable[[str], ir.Model]) -> None:
    model = legalized(RELU)
    seen: list[str] = []
    PassContext((lambda name, *_: seen.append(name),)).run(
        model, (OnTanh("Relu", "Exp"), Renaming("Relu", "Tanh"), OnTanh("Tanh", "Neg"))
    )
    assert [node.op_type for node in model.graph] == ["Neg"]
    assert seen == ["on_tanh", "renaming", "on_tanh"]


def test_the_form_is_verified_behind_a_pass_that_is_passed_over(
    legalized: Callable[[str], ir.Model],
) -> None:
    model = legalized(RELU)
    passes = (Breaking(), OnTanh("Tanh", "Neg"))
    with pytest.raises(InternalError, match="after the pass on_tanh: unique node names"):
        PassContext().run(model, passes, legal_from=1)
    with pytest.raises(InternalError, match="after the pass breaking"):
        PassContext().run(model, passes)
