"""Fourier transforms of any length have the digits of their type."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import sambac
import sambarun
from sambac.passes.legalize.exact_transforms import ExactTransforms
from sambac.passes.legalize.infer_shapes import InferShapes

TOLERANCES = {"float": 2e-6, "double": 1e-12}
"""Parts of the largest element, by ONNX's name of the type."""


def run(text: str, feeds: dict[str, np.ndarray], opset: int) -> np.ndarray:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]>\ng {text}')
    with sambarun.load(sambac.compile(model)) as executable:
        found: np.ndarray = executable.run(feeds)["y"]
    return found


def numbers(*shape: int, kind: str) -> np.ndarray:
    return np.random.default_rng(7).normal(size=shape).astype(f"f{4 if kind == 'float' else 8}")


def require_near(found: np.ndarray, wanted: np.ndarray, kind: str) -> None:
    made = found[..., 0] + 1j * found[..., 1]
    assert np.abs(made - wanted).max() <= TOLERANCES[kind] * np.abs(wanted).max()


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("length", [64, 100, 441])
@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("kind", ["float", "double"])
def test_transforms_have_all_digits(kind: str, inverse: int, length: int, opset: int):
    x = numbers(3, length, 2, kind=kind)
    wanted = (np.fft.ifft if inverse else np.fft.fft)(x[..., 0].astype("f8") + 1j * x[..., 1])
    text = (
        f"({kind}[3,{length},2] x) => ({kind}[3,{length},2] y)"
        f"{{ y = DFT <inverse = {inverse}> (x) }}"
    )
    require_near(run(text, {"x": x}, opset), wanted, kind)


def test_open_sizes_have_all_digits():
    x = numbers(3, 400, 1, kind="float")
    text = "(float[3,n,1] x) => (float[3,n,2] y) { y = DFT (x) }"
    require_near(run(text, {"x": x}, 20), np.fft.fft(x[..., 0].astype("f8")), "float")


@pytest.mark.parametrize("length", [64, 100])
def test_frames_have_all_digits(length: int):
    x = numbers(2, 3 * length, 1, kind="float")
    text = f"""(float[2,{3 * length},1] x) => (float[2,f,b,2] y) <int64 step = {{{length}}},
        int64 length = {{{length}}}> {{ y = STFT (x, step, , length) }}"""
    frames = x.reshape(2, 3, length).astype("f8")
    require_near(run(text, {"x": x}, 20), np.fft.rfft(frames), "float")


def test_what_is_rewritten_stays():
    model: Any = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 20]>
        g (float[3,100,2] x, double[3,100,2] z) => (float[3,100,2] y, double[3,100,2] w)
        { y = DFT<inverse = 1>(x)  w = DFT<inverse = 1>(z) }"""
    )
    graph = ir.serde.deserialize_model(model)
    InferShapes()(graph)
    assert ExactTransforms()(graph).modified
    ExactTransforms()(graph)  # the inverse that was widened is divided exactly, too
    assert not ExactTransforms()(graph).modified


@pytest.mark.parametrize("rows", ["2", "b"])
def test_a_signal_needs_no_axis_of_parts(rows: str) -> None:
    """As PyTorch exports `torch.stft`; signals of numbers in two parts have one."""
    text = f"""<ir_version: 9, opset_import: ["": 18]>
        g (float[{rows}, 12] x) => (float[{rows}, 3, 3, 2] y)
        <int64 step = {{4}}, int64 size = {{4}}> {{ y = STFT <onesided = 1> (x, step, , size) }}"""
    x = np.random.default_rng(0).normal(size=(2, 12)).astype(np.float32)
    with sambarun.load(sambac.compile(onnx.parser.parse_model(text))) as executable:
        found = executable.run({"x": x})["y"]
    wanted = np.fft.rfft(x.reshape(2, 3, 4).astype(np.float64))
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], wanted, atol=1e-5)
