"""Names that training gives what it adds: what is inside of a model gives way to them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import sambac
import sambarun

_MODEL = """
<ir_version: 10, opset_import: ["": 17]>
net (float[4,3] x) => (float loss)
<float[3,2] w = {0.5, -1.5, 2.0, 0.25, -0.75, 1.0}>
{ h = MatMul (x, w)  d = Dropout (h)  q = Mul (d, d)  inner = Tanh (q)
  loss = ReduceMean <keepdims = 0> (inner) }"""
_OPTIONS = sambac.CompileOptions(
    train=True, optimizers=(sambac.Adam(lr=0.1),), max_grad_norm=1.0, accumulate=True
)
_X = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
NAMES = [
    "loss__grad", "w__grad", "w__grad__next", "w__grad__scaled", "w__exp_avg", "w__next",
    "adam.lr", "adam__step", "grad_norm", "max_grad_norm", "seed", "site.mask", "site.p",
]  # fmt: skip


def _model(**names: str) -> onnx.ModelProto:
    """Return a model in which some values bear other names."""
    model = onnx.parser.parse_model(_MODEL)
    model.graph.node[1].name = "site"
    for node in model.graph.node:
        for values in (node.input, node.output):
            values[:] = [names.get(name, name) for name in values]
    for port in (*model.graph.input, *model.graph.output):
        port.name = names.get(port.name, port.name)
    return model


def _trained(model: onnx.ModelProto) -> tuple[dict[str, np.ndarray], list[str]]:
    program = sambac.compile(model, _OPTIONS)
    with sambarun.load(program) as executable:
        executable.step({"x": _X})
        return executable.state(), sorted(executable.argins)


@pytest.mark.parametrize("name", NAMES)
def test_results_inside_give_way(name: str) -> None:
    state, argins = _trained(_model(inner=name))
    expected, names = _trained(_model())
    assert argins == names
    assert list(state) == list(expected)
    for key, array in expected.items():
        np.testing.assert_array_equal(state[key], array)


@pytest.mark.parametrize(
    "name", ["loss__grad", "w__grad", "adam.lr", "seed", "site.mask", "grad_norm"]
)
def test_inputs_keep_their_names(name: str) -> None:
    with pytest.raises(sambac.CompileError, match=f"Training needs the name '{name}', which the"):
        sambac.compile(_model(x=name), _OPTIONS)
