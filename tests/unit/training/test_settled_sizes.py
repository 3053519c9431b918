"""Sizes that constants tell, and branches that such sizes choose, as scripted models have them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import sambac
from sambarun import load

# What to pad is computed; the size of the padded tensor chooses the product, that of the product
# what comes next.
_CHOSEN = """<ir_version: 8, opset_import: ["": 17]>
g (float[2, 3] x) => (float[a, b] z)
   <int64[1] two = {2}, int64[2] front = {0, 1}, int64 one = {1}, int64 four = {4}> {
    zeros = ConstantOfShape<value = int64[1] {0}>(two)
    pads = Concat<axis = 0>(front, zeros)
    h = Pad(x, pads)
    s = Shape(h)
    w = Gather(s, one)
    c = Equal(w, four)
    y = If (c) <
        then_branch = t () => (float[m, n] p)
            <float[4, 2] v = {0.5, -0.25, 0.75, 1, -1, 0.125, 0.25, -0.5}> { p = MatMul(h, v) },
        else_branch = f () => (float[k] q) { q = ReduceSum<keepdims = 0>(h) }>
    r = Size(y)
    d = Equal(r, four)
    z = If (d) <
        then_branch = t2 () => (float[i, j] u) { u = Tanh(y) },
        else_branch = f2 () => (float[l] o) { o = ReduceSum<keepdims = 0>(y) }>
}"""


def _step(x: np.ndarray, v: np.ndarray, t: np.ndarray) -> tuple[np.float64, np.ndarray]:
    h = np.pad(x, ((0, 0), (1, 0)))
    z = np.tanh(h @ v)
    return np.mean((z - t) ** 2), v - 0.5 * h.T @ (2 * (z - t) / z.size * (1 - z**2))


def test_a_size_chooses_a_branch_whose_size_chooses_another() -> None:
    options = sambac.CompileOptions(train=True, loss=("mse:z,t",), optimizers=(sambac.SGD(lr=0.5),))
    random = np.random.default_rng(0)
    x, t = random.normal(size=(2, 3)), random.normal(size=(2, 2))
    with load(sambac.compile(parser.parse_model(_CHOSEN), options)) as executable:
        before = executable.state()["v"].astype(np.float64)
        given = {"x": x.astype(np.float32), "t": t.astype(np.float32)}
        evaluated = executable.run(given, section_types=("FWD",))["loss"]
        loss = executable.step(given)["loss"]
        after = executable.state()["v"]
    expected, moved = _step(x, before, t)
    np.testing.assert_allclose([evaluated, loss], expected, rtol=1e-5)
    np.testing.assert_allclose(after, moved, rtol=1e-5, atol=1e-6)


def test_pads_whose_number_is_computed() -> None:
    """As exporters fill up with zeros the margins that a module computes from sizes."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[2, 3] x) => (float[a, b] z)
           <int64[1] four = {4}, int64[1] zero = {0}, int64[1] first = {1},
            int64[1] back = {-1}, int64[1] far = {-9223372036854775807},
            float[4, 2] v = {0.5, -0.25, 0.75, 1, -1, 0.125, 0.25, -0.5}> {
            sizes = Shape(x)
            given = Slice(sizes, zero, first)
            more = Sub(given, first)
            some = Concat<axis = 0>(more, zero)
            count = Shape(some)
            left = Sub(four, count)
            zeros = ConstantOfShape<value = int64[1] {0}>(left)
            pads = Concat<axis = 0>(zeros, some)
            turned = Slice(pads, back, far, zero, back)
            h = Pad(x, turned)
            m = MatMul(h, v)
            z = Tanh(m)
        }""")
    options = sambac.CompileOptions(train=True, loss=("mse:z,t",), optimizers=(sambac.SGD(lr=0.5),))
    random = np.random.default_rng(0)
    x, t = random.normal(size=(2, 3)), random.normal(size=(2, 2))
    with load(sambac.compile(model, options)) as executable:
        before = executable.state()["v"].astype(np.float64)
        loss = executable.step({"x": x.astype(np.float32), "t": t.astype(np.float32)})["loss"]
        after = executable.state()["v"]
    expected, moved = _step(x, before, t)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(after, moved, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["mse", "cross_entropy"])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            """y = If (c) <then_branch = t () => (float[m, n] p) { p = MatMul(x, v) },
                           else_branch = f () => (float[k] q) { q = ReduceSum(x) }>""",
            "unknown, which begins at the operator If .*nothing is trained through control flow",
        ),
        (
            "h = MatMul(x, v) e = Cast<to = 9>(h) f = NonZero(e) y = Cast<to = 1>(f)",
            "unknown, which begins at the operator NonZero.*training needs all sizes",
        ),
    ],
)
def test_a_loss_on_what_has_a_size_of_its_own_in_each_run_is_refused(
    kind: str, body: str, said: str
) -> None:
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[2, 3] x, bool c) => (float[a, b] y)
           <float[3, 2] v = {{1, 2, 3, 4, 5, 6}}> {{ {body} }}""")
    options = sambac.CompileOptions(train=True, loss=(f"{kind}:y,t",))
    with pytest.raises(sambac.CompileError, match=said):
        sambac.compile(model, options)
