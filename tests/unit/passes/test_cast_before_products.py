"""Products behind casts behind transposes run in every type: some ended the process."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import onnx
import pytest

import sambac
import sambarun

TYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "int32": np.int32}
SIZES = {"n": 5, "4": 4, "3": 3}
ORDERS = tuple(itertools.permutations(range(3)))


def model(kind: str, order: tuple[int, ...], cast: str) -> onnx.ModelProto:
    """Return a model that multiplies what is transposed, as the type has it or cast."""
    to, weight = ("float", np.float32) if cast else (kind, TYPES[kind])
    sizes = [list(SIZES)[axis] for axis in order]
    text = f"""<ir_version: 10, opset_import: ["": 20]>
        g ({kind}[n,4,3] x) => ({to}[{sizes[0]},{sizes[1]}] y) {{
        t = Transpose <perm = [{",".join(map(str, order))}]> (x)
        {cast or "c = Identity (t)"}
        p = MatMul (c, w)  y = ReduceSum <keepdims = 0> (p, last) }}"""
    made = onnx.parser.parse_model(text)
    last = SIZES[sizes[2]]
    w = (np.arange(2 * last).reshape(last, 2) - last).astype(weight)
    constants = {"w": w, "last": np.asarray([2])}
    made.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in constants.items()
    )
    return made


@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("kind", "cast"),
    [("float16", ""), ("bfloat16", ""), ("float16", "c = Cast <to = 1> (t)"),
     ("int32", "c = Cast <to = 1> (t)")],
)  # fmt: skip
def test_products_behind_transposes_run(kind: str, cast: str, order: tuple[int, ...], level: str):
    made = model(kind, order, cast)
    x = (np.arange(60).reshape(5, 4, 3) % 7 - 3).astype(TYPES[kind])
    w = onnx.numpy_helper.to_array(made.graph.initializer[0]).astype(np.float64)
    wanted = (x.astype(np.float64).transpose(order) @ w).sum(-1)
    program = sambac.compile(made, options=sambac.CompileOptions(level=level))
    with sambarun.load(program) as executable:
        found = executable.run({"x": x})["y"].astype(np.float64)
    np.testing.assert_allclose(found, wanted, atol=0.02 * np.abs(wanted).max())
