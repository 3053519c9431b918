"""Equal sizes have one name, whatever inference made up for them; others have their own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from sambac.graph.size_sums import SizeSums
from sambac.passes.legalize.infer_shapes import infer

SIZES = {"N": 3, "M": 5, "K": 3}
INPUTS = {
    "x": ("float", ["N", 8, 64]),
    "z": ("float", ["N", "M", 64]),
    "k": ("float", ["K", 8, 64]),
    "w": ("float", [64, 5]),
    "i": ("int64", ["N", "M"]),
}
CONSTANTS = """
    int64[3] halves = {-1, 4, 128}, int64[3] rows = {0, -1, 64}, int64[2] flat = {-1, 64},
    int64[3] back = {-1, 8, 64}, int64[1] one = {1}, int64[1] two = {2}, int64[1] minus = {-1},
    int64[1] first = {0}, int64[2] pair = {0, 2}, int64 at = {3}, float number = {2}
"""


@dataclass(frozen=True)
class Case:
    """What makes y of the inputs, and its sizes; a size of "" has a name that no input has."""

    body: str
    sizes: tuple[int | str, ...]


CASES = [
    Case("y = Reshape (x, halves)", ("N", 4, 128)),
    Case("a = Reshape (x, flat) y = Reshape (a, back)", ("N", 8, 64)),
    Case("y = Reshape (z, rows)", ("N", "M", 64)),
    Case("a = Reshape (x, back) y = Add (a, x)", ("N", 8, 64)),
    Case("a = Reshape (x, back) y = Where (c, a, x)", ("N", 8, 64)),
    Case("a = Reshape (x, halves) b = Softmax (a) y = Mul (b, number)", ("N", 4, 128)),
    Case("a = Reshape (x, back) y = MatMul (a, w)", ("N", 8, 5)),
    Case(
        "a = Reshape (x, back) t = Transpose <perm = [0, 2, 1]> (x) y = MatMul (a, t)", ("N", 8, 8)
    ),
    Case("a = Reshape (x, back) y = Unsqueeze (a, one)", ("N", 1, 8, 64)),
    Case("a = Reshape (x, back) y = Unsqueeze (a, pair)", (1, "N", 1, 8, 64)),
    Case("a = Reshape (x, back) y = Slice (a, one, two, one)", ("N", 1, 64)),
    Case("a = Reshape (x, back) y, b = Split <axis = 1, num_outputs = 2> (a)", ("N", 4, 64)),
    Case("a = Reshape (x, back) y = ReduceMean <keepdims = 1> (a, minus)", ("N", 8, 1)),
    Case("a = Reshape (x, back) y = Gather <axis = 1> (a, two)", ("N", 1, 64)),
    Case("a = Reshape (x, back) y = Gather <axis = 1> (a, at)", ("N", 64)),
    Case("y = Gather (w, i)", ("N", "M", 5)),
    Case("a = Reshape (x, back) y = Concat <axis = 0> (a, x)", ("", 8, 64)),
    Case("a = Reshape (x, back) y = Slice (a, one, two, first)", ("", 8, 64)),
    Case("a = Reshape (x, back) y, b = Split <num_outputs = 2> (a)", ("", 8, 64)),
    Case("a = Reshape (x, flat) y = Neg (a)", ("", 64)),
    Case("y = Add (x, k)", ("", 8, 64)),
    Case("y = Concat <axis = 1> (z, x)", ("N", "", 64)),
]


def declared() -> str:
    shapes = {name: ",".join(map(str, sizes)) for name, (_, sizes) in INPUTS.items()}
    return ", ".join(f"{kind}[{shapes[name]}] {name}" for name, (kind, _) in INPUTS.items())


def parsed(body: str) -> ir.Model:
    return ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["" : 18]> g ({declared()}, bool[1] c) => (float y) '
        f"<{CONSTANTS}> {{ {body} }}"
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.body)
def test_sizes_have_the_names_of_those_that_they_equal(case: Case) -> None:
    model = parsed(case.body)
    infer(model)
    shape = model.graph.outputs[0].shape
    assert shape is not None
    names = [size if isinstance(size, int) else str(size.value) for size in shape]
    told = [name if isinstance(name, int) or name in SIZES else "" for name in names]
    assert tuple(told) == case.sizes

    feeds = {
        name: np.zeros(
            [SIZES.get(str(size), size) for size in sizes], {"float": "f4"}.get(kind, kind)
        )
        for name, (kind, sizes) in INPUTS.items()
    }
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    (found,) = session.run(["y"], {**feeds, "c": np.ones(1, bool)})
    wanted = [SIZES.get(str(size), size) for size in case.sizes]
    assert all(one in (other, "") for one, other in zip(wanted, found.shape, strict=True))


@pytest.mark.parametrize("shape", [None, ir.Shape([None, 4])])
def test_what_is_left_of_an_unknown_shape_is_unknown(shape: ir.Shape | None) -> None:
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 18]> g (float[N] x) => (float y) '
        "<int64[1] flat = {-1}> { a = Custom (x) y = Reshape (a, flat) }"
    )
    a, y = (node.outputs[0] for node in model.graph)
    a.shape, y.shape = shape, ir.Shape(["unk__0"])
    assert SizeSums(model.graph).size(y, 0) == {"unk__0": 1}


def test_sums_have_one_name_each() -> None:
    model = parsed(
        "a = Concat <axis = 1> (z, x) b = Concat <axis = 1> (x, z) d = Neg (b) "
        "e = Concat <axis = 1> (d, d) y = Add (a, b)"
    )
    infer(model)
    sizes = [node.outputs[0].shape[1] for node in model.graph]
    assert sizes[0] == sizes[1] == sizes[2] == sizes[4]
    assert sizes[3] != sizes[0]
