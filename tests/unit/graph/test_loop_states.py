"""What a Loop hands from step to step has a shape where every step keeps it."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import sambac
import sambarun
from sambac.graph.loop_states import keep_loop_states
from sambac.passes.legalize.infer_shapes import infer

_KEPT, _OPEN_ROWS, _UNKNOWN = ["3", "n"], ["None", "n"], None


def _model(step: str, result: str = "") -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 18]>
        g (float[3, n] x, float[3, n] w) => (float[] y, float[] z)
        <int64 count = {{2}}, bool go = {{1}}> {{
            {"p, q" if result else "y, z"} = Loop (count, go, x, w) <
                body = step (int64 i, bool c, float[] a, float[] b)
                    => (bool d, float[] e, float[] f) {{ d = Identity (c) {step} }}
            >
            {result}
        }}
    """)


@pytest.mark.parametrize(
    ("step", "first", "second"),
    [
        ("e = Add (a, w) f = Neg (b)", _KEPT, _KEPT),
        ("e = Add (b, w) f = Identity (a)", _KEPT, _KEPT),
        ("e = Neg (a) f = Concat <axis = 0> (b, b)", _KEPT, _OPEN_ROWS),
        ("e = Concat <axis = 0> (b, b) f = Identity (a)", _OPEN_ROWS, _OPEN_ROWS),
        ("k = Constant <value_ints = [0]> () e = Neg (a) f = Unsqueeze (b, k)", _KEPT, _UNKNOWN),
        ("k = Constant <value_ints = [0]> () e = Neg (b) f = Unsqueeze (a, k)", _UNKNOWN, _UNKNOWN),
    ],
)
def test_shapes_that_steps_keep(
    step: str, first: list[str] | None, second: list[str] | None
) -> None:
    model = ir.from_proto(_model(step))
    infer(model)
    shapes = [value.shape for value in model.graph.outputs]
    found = [None if shape is None else [str(size) for size in shape] for shape in shapes]
    assert found == [first, second]


@pytest.mark.parametrize("level", ["O0", "O3"])
def test_a_sum_of_products_of_what_a_loop_gives_runs(level: str) -> None:
    model = _model(
        "e = Add (a, w) f = Neg (b)",
        'y = Einsum <equation = "ij,kj->ik"> (p, q) z = Identity (q)',
    )
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 3, 4)).astype(np.float32)
    inputs = {name: sambac.InputSpec((3, 4)) for name in "xw"}
    program = sambac.compile(model, sambac.CompileOptions(level=level, inputs=inputs))
    with sambarun.load(program) as executable:
        found = executable.run({"x": x, "w": w})
    np.testing.assert_allclose(found["y"], (x + 2 * w) @ w.T, rtol=1e-5)


def test_what_a_body_does_not_type_keeps_its_type() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 18]>
        g (float[3, n] x) => (float[] y, seq(float[]) z)
        <int64 count = {2}, bool go = {1}> {
            s = SequenceConstruct (x)
            y, z = Loop (count, go, x, s) <
                body = step (int64 i, bool c, float[] a, seq(float[]) b)
                    => (bool d, float[] e, seq(float[]) f)
                { d = Identity (c) e = Neg (a) f = SequenceInsert (b, a) }
            >
        }
    """)
    (body,) = (a.g for node in model.graph.node for a in node.attribute if a.name == "body")
    for value in (*body.input, *body.output):
        value.ClearField("type")
    before = [value.type.WhichOneof("value") for value in model.graph.output]
    keep_loop_states(model)
    assert [value.type.WhichOneof("value") for value in model.graph.output] == before
