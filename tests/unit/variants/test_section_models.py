"""The model of a section that passes rewrite is the section: it serialises to the same bytes."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from sambac.graph.constants import is_literal
from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.planning.plans import LiveSets
from sambac.section_program import SectionSource
from sambac.variants.terms import LeaveOut

TEXT = """
<ir_version: 10, opset_import: ["" : 23]>
g (float[2,3] x, bool c, float zero) => (float[2,3] y, float[2,3] z)
<int64[1] axes = {1}, float[2,3] w = {1, 2, 3, 4, 5, 6}, float half = {0.5}>
{
   s = ReduceSum <keepdims = 1> (x, axes)
   a = Add (x, w)
   y = If (c) <then_branch = t () => (float[2,3] p)
                 { k = Constant <value_float = 2.0> ()  q = Mul (a, k)  p = Add (q, s) },
               else_branch = e () => (float[2,3] r) { r = Mul (a, half) }>
   m = Mul (w, zero)
   z = Add (x, m)
}
"""


@pytest.fixture
def source() -> SectionSource:
    model = ir.from_onnx_text(TEXT)
    for index, node in enumerate(model.graph):
        node.name = f"n{index}"
    InferShapes()(model)
    return SectionSource.of(model, is_literal)


SETS = LiveSets(
    ops=("n0", "n1", "n2", "n3", "n4"),
    live_in=("x", "c", "zero"),
    weights=("w",),
    live_out=("y", "z"),
)


def test_the_model_of_a_section_serialises_to_its_program(source: SectionSource) -> None:
    section = source.model(SETS)
    assert section.program() == source.program(SETS)
    assert [value.name for value in section.model.graph.inputs] == ["i0", "i1", "i2", "w0"]
    assert list(section.model.graph.initializers) == ["t0", "t6"]
    assert section.model.graph.inputs[3].const_value is None


def test_a_model_is_a_copy(source: SectionSource) -> None:
    before = source.program(SETS)
    model = source.model(SETS).model
    for node in tuple(model.graph):
        node.attributes.clear()
        node.outputs[0].name = "other"
    assert source.program(SETS) == before
    assert source.values["half"].const_value.name == "half"


def test_what_does_nothing_is_left_out_with_what_only_it_reads(source: SectionSource) -> None:
    sets = LiveSets(("n3", "n4"), ("x", "zero"), ("w",), ("z",))
    section = source.model(sets)
    assert not LeaveOut((None, None), {})(section.model).modified
    assert LeaveOut((None, 0.0), {0: 0})(section.model).modified
    program = section.program()
    assert (program.inputs, program.weights, program.outputs) == (("", ""), ("w0",), ("",))
    graph = onnx.load_model_from_string(program.graph).graph
    assert [*graph.node, *graph.input, *graph.output, *graph.initializer] == []


def test_an_output_that_would_be_a_copy_changes_nothing(source: SectionSource) -> None:
    sets = LiveSets(("n3", "n4"), ("x", "zero"), ("w",), ("z",))
    section = source.model(sets)
    assert not LeaveOut((None, 0.0), {})(section.model).modified
    assert section.program() == source.program(sets)
