"""ONNX files as exporters write them: where weights lie, who reads them, which opset it is."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
import torch
from onnx import external_data_helper, numpy_helper
from onnx_ir.passes import common as passes

import sambac
import sambarun

_RNG = np.random.default_rng(2)
_X = _RNG.standard_normal((4, 3)).astype(np.float32)
_WEIGHTS = {
    name: _RNG.standard_normal(shape).astype(np.float32)
    for name, shape in (("w", (3, 3)), ("v", (3, 3)), ("b", (3,)))
}
_OPTIONS = sambac.CompileOptions(train=True, loss=("loss",), optimizers=(sambac.SGD(lr=0.1),))
_LOSS = "q = Mul (y, y)  loss = ReduceMean <keepdims = 0> (q)"
_NET = f"h = MatMul (x, w)  t = Tanh (h)  u = MatMul (t, v)  y = Add (u, b) {_LOSS}"


def _model(body: str, opset: int = 17, *, weights: str = "wvb") -> onnx.ModelProto:
    """Return a model of x [4, 3], a flag and the `weights`, whose result is a loss."""
    text = (
        f'<ir_version: 10, opset_import: ["": {opset}]> '
        f"g (float[4,3] x, bool flag) => (float loss) {{ {body} }}"
    )
    model = onnx.parser.parse_model(text)
    for name in weights:
        model.graph.initializer.append(numpy_helper.from_array(_WEIGHTS[name], name))
    return model


def _trained(
    model: onnx.ModelProto | Path,
    options: sambac.CompileOptions = _OPTIONS,
    dtype: npt.DTypeLike = "f",
) -> dict[str, np.ndarray]:
    with sambarun.load(sambac.compile(model, options)) as executable:
        executable.step({"x": _X.astype(dtype), "flag": np.array(True)})
        return _weights(executable.state())


def _weights(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the weights among states, without the momentum that SGD keeps for each."""
    return {name: array for name, array in state.items() if "__" not in name}


def _in_torch(loss) -> dict[str, np.ndarray]:
    """Return the weights after a step on `loss`, a function of x and the weights."""
    leaves = {name: torch.tensor(array, requires_grad=True) for name, array in _WEIGHTS.items()}
    loss(torch.tensor(_X), **leaves).backward()
    return {
        name: (leaf - 0.1 * leaf.grad if leaf.grad is not None else leaf).detach().numpy()
        for name, leaf in leaves.items()
    }


def _expect(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], tolerance=1e-5) -> None:
    for name, array in found.items():
        wide = array.astype(np.float64)
        np.testing.assert_allclose(wide, expected[name], rtol=tolerance, atol=tolerance)


def _net(x, w, v, b):
    return ((torch.tanh(x @ w) @ v + b) ** 2).mean()


@pytest.mark.parametrize("files", [("all.bin",) * 3, ("w.bin", "v.bin", "b.bin")])
def test_weights_in_other_files(tmp_path: Path, files: tuple[str, ...]) -> None:
    model = _model(_NET)
    for tensor, location in zip(model.graph.initializer, files, strict=True):
        external_data_helper.set_external_data(tensor, location)
    path = tmp_path / "net.onnx"
    onnx.save(model, path)
    assert not any(
        tensor.raw_data for tensor in onnx.load(path, load_external_data=False).graph.initializer
    )
    before = {name: (tmp_path / name).read_bytes() for name in files}
    _expect(_trained(path), _in_torch(_net))
    assert {name: (tmp_path / name).read_bytes() for name in files} == before


def test_a_weight_that_two_operators_read() -> None:
    """One as it is, the other transposed: its gradient is the sum of both."""
    body = f"h = MatMul (x, w)  t = Tanh (h)  z = Transpose (w)  y = MatMul (t, z) {_LOSS}"
    found = _trained(_model(body, weights="w"))
    assert list(found) == ["w"]
    _expect(found, _in_torch(lambda x, w, **_: ((torch.tanh(x @ w) @ w.T) ** 2).mean()))


@pytest.mark.parametrize("ir_version", [3, 10])
def test_weights_that_are_listed_among_the_inputs(ir_version: int) -> None:
    model = _model(_NET)
    model.ir_version = ir_version
    for tensor in model.graph.initializer:
        model.graph.input.append(
            onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        )
    program = sambac.compile(model, _OPTIONS)
    assert [port.name for port in program.graphs[0].inputs] == ["x", "flag", "loss__grad"]
    _expect(_trained(model), _in_torch(_net))


@pytest.mark.parametrize("opset", [*range(7, 26)])
def test_every_opset_trains(opset: int) -> None:
    _expect(_trained(_model(_NET, opset)), _in_torch(_net))


@pytest.mark.parametrize("dtype", ["float16", "double"])
def test_limits_and_margins_of_old_opsets_train_in_other_types(dtype: str) -> None:
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 10]> g ({dtype}[4,3] x, bool flag) => ({dtype} loss) {{
            h = Mul (x, w)
            c = Clip <min = -0.5, max = 0.5> (h)
            y = Pad <pads = [1, 0, 0, 0], value = 2.0> (c) {_LOSS}
        }}
    """)
    w = np.array([1, -0.5, 0.25], dtype.replace("double", "float64"))
    model.graph.initializer.append(numpy_helper.from_array(w, "w"))
    x = _X.astype(w.dtype).astype(np.float64)
    inside = np.abs(x * w) < 0.5
    slope = (2 / 15 * x * x * w * inside).sum(0)
    found = _trained(model, dtype=w.dtype)["w"]
    np.testing.assert_allclose(found, w - 0.1 * slope, rtol=2e-3 if dtype == "float16" else 1e-6)


def test_an_operator_that_opset_23_does_not_have_is_named() -> None:
    model = _model(f"h = MatMul (x, w)  y = Swish (h) {_LOSS}", 24, weights="w")
    with pytest.raises(sambac.CompileError, match=r"of opset 24 and cannot .* 23, .* such Swish;"):
        sambac.compile(model, _OPTIONS)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float16", 4e-3), ("bfloat16", 2e-2), ("double", 1e-6)]
)
def test_weights_of_other_types(dtype: str, tolerance: float) -> None:
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 17]> '
        f"g ({dtype}[4,3] x, bool flag) => ({dtype} loss) {{ {_NET} }}"
    )
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    for name, array in _WEIGHTS.items():
        model.graph.initializer.append(numpy_helper.from_array(array.astype(kind), name))
    found = _trained(model, dtype=kind)
    assert {array.dtype for array in found.values()} == {kind}
    _expect(found, _in_torch(_net), tolerance)


_BRANCHES = (
    "If (flag) <then_branch = t () => (float[4,3] a) {{ a = {} ({}) }}, "
    "else_branch = e () => (float[4,3] c) {{ c = Neg ({}) }}>"
)
_OUTSIDE = {
    "If": f"z = {_BRANCHES.format('Identity', 'x', 'x')}",
    "Scan": """k = Constant <value_floats = [0.0, 0.0, 0.0]> ()
      l, z = Scan <num_scan_inputs = 1, body = s (float[3] n, float[3] i)
        => (float[3] m, float[3] o) { m = Add (n, i)  o = Identity (i) }> (k, x)""",
}
_INSIDE = {
    "If": f"z = {_BRANCHES.format('Identity', 'g', 'g')}",
    "Scan": _OUTSIDE["Scan"].replace("(k, x)", "(k, g)"),
}


@pytest.mark.parametrize("kind", _OUTSIDE)
def test_control_flow_before_what_is_trained(kind: str) -> None:
    body = f"{_OUTSIDE[kind]} h = MatMul (z, w)  t = Tanh (h)  u = MatMul (t, v)  y = Add (u, b)"
    _expect(_trained(_model(f"{body} {_LOSS}")), _in_torch(_net))


@pytest.mark.parametrize("kind", _INSIDE)
def test_control_flow_inside_what_is_trained_is_named(kind: str) -> None:
    model = _model(f"g = MatMul (x, w) {_INSIDE[kind]} y = Tanh (z) {_LOSS}", weights="w")
    next(node for node in model.graph.node if node.op_type == kind).name = "the_culprit"
    with pytest.raises(sambac.CompileError, match=f"through {kind} 'the_culprit' .nothing is"):
        sambac.compile(model, _OPTIONS)


_LOOP = """k = Constant <value_int = 3> ()
  z = Loop (k, flag, x) <body = b (int64 i, bool c, float[4,3] a) => (bool d, float[4,3] e)
    { d = Identity (c)  e = Neg (a) }>"""


@pytest.mark.parametrize("loss", [("loss",), ()], ids=["named", "found"])
def test_a_loop_whose_result_has_no_known_shape(loss: tuple[str, ...]) -> None:
    model = _model(f"{_LOOP} y = MatMul (z, w) {_LOSS}", weights="w")
    with pytest.raises(sambac.CompileError, match=r"'loss' is unknown, which .* operator Loop"):
        sambac.compile(model, dataclasses.replace(_OPTIONS, loss=loss))


@pytest.mark.parametrize("given", ["", ", c"], ids=["alike", "weighted"])
@pytest.mark.parametrize("ignored", ["", ", ignore_index = -1"], ids=["all", "ignored"])
@pytest.mark.parametrize("op", ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"])
def test_negative_labels_of_an_operator_count_from_the_end(
    op: str, ignored: str, given: str
) -> None:
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 17]> g (float[4,3] x, int64[4] t) => (float loss)
        <float[3] c = {{0.5, 1.0, 2.0}}> {{
            h = MatMul (x, w)
            loss = {op} <reduction = "mean"{ignored}> (h, t{given})
        }}
    """)
    model.graph.initializer.append(numpy_helper.from_array(_WEIGHTS["w"], "w"))
    options = dataclasses.replace(_OPTIONS, freeze=("c",) if given else ())
    program = sambac.compile(model, options)

    def stepped(labels: list[int]) -> tuple[float, np.ndarray]:
        with sambarun.load(program) as executable:
            losses = executable.step({"x": _X, "t": np.array(labels)})
            return float(losses["loss"]), np.array(executable.state()["w"])

    (loss, weight), (same_loss, same_weight) = stepped([0, -2, -3, 2]), stepped([0, 1, 0, 2])
    assert loss == same_loss
    np.testing.assert_array_equal(weight, same_weight)
    assert (stepped([0, 1, 0, -1])[0] == same_loss) == (not ignored)
    for beyond in (-4, 3):
        with pytest.raises(sambarun.RunError, match=f"holds .*{beyond}"):
            stepped([0, 1, 0, beyond])


def test_a_loss_that_depends_on_nothing_trained() -> None:
    model = _model(f"y = Tanh (x)  m = MatMul (y, w) {_LOSS}", weights="w")
    with pytest.raises(sambac.CompileError, match=r"depends on none of the parameters .*\(w\)"):
        sambac.compile(model, _OPTIONS)


def test_whole_numbers_are_not_trained() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 17]> g (float[4,3] x) => (float loss) '
        f"<int64[3] n = {{1, 2, 3}}> {{ f = Cast <to = 1> (n)  y = Mul (x, f) {_LOSS} }}"
    )
    with pytest.raises(sambac.CompileError, match="the model has no parameters"):
        sambac.compile(model, _OPTIONS)


def test_weights_that_operators_constant_hold_train_once_they_are_initializers() -> None:
    """Exporters of Paddle write weights so."""
    numbers = ", ".join(str(number) for number in np.linspace(-1, 1, 24))
    body = f"w = Constant <value = float[3,8] {{{numbers}}}> ()  y = MatMul (x, w) {_LOSS}"
    model = _model(body, weights="")
    with pytest.raises(sambac.CompileError) as caught:
        sambac.compile(model, _OPTIONS)
    named = re.search(r"onnx_ir\.passes\.common\.(\w+)", str(caught.value))
    assert named is not None, caught.value
    lift = getattr(passes, named[1])()
    lifted = ir.to_proto(lift(ir.from_proto(model)).model)
    w = np.linspace(-1, 1, 24).astype(np.float32).reshape(3, 8)
    gradient = 2 * _X.T @ (_X @ w) / 32
    np.testing.assert_allclose(_trained(lifted)["w"], w - 0.1 * gradient, rtol=1e-5, atol=1e-6)


def test_scales_of_an_old_upsampling_are_no_weights() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 9]>
      g (float[1,1,3,3] x) => (float loss) <float[1,1,1,1] w = {2.0}, float[4] s = {1, 1, 2, 2}>
      { h = Conv (x, w)  u = Upsample <mode = "nearest"> (h, s)
        q = Mul (u, u)  loss = ReduceMean <keepdims = 0> (q) }""")
    x = _RNG.standard_normal((1, 1, 3, 3)).astype(np.float32)
    with sambarun.load(sambac.compile(model, _OPTIONS)) as executable:
        executable.step({"x": x})
        state = _weights(executable.state())
    assert list(state) == ["w"]
    np.testing.assert_allclose(state["w"].item(), 2 - 0.1 * 4 * (x**2).mean(), rtol=1e-5)
