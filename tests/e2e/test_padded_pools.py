"""Pools of what is padded by zeros: onnxruntime takes the zeros for margins, which they are not."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from near import assert_near
from torch import nn
from torch.nn import functional

import sambac
import sambarun
from sambac.options import Level
from sambac.quantization import quantize

LEVELS = ("O0", "O1", "O3")
WIDTHS = ((1, 1, 1, 1), (0, 2, 0, 0), (0, 0, 3, 1), (-1, 0, 2, 0))
"""Above, left, below, right: not wider than a window, wider, and cut off."""


def _results(text: str, opset: int, x: np.ndarray, level: Level) -> np.ndarray:
    model = onnx.parser.parse_model(f'<ir_version: 7, opset_import: ["": {opset}]> g {text}')
    program = sambac.compile(model, sambac.CompileOptions(level=level))
    with sambarun.load(program) as executable:
        return executable.run({"x": x})["y"]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("value", ["", ", zero"])
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
def test_pads_before_pools(kind: str, ceil: bool, value: str, opset: int, level: Level) -> None:
    x = np.random.default_rng(0).uniform(-2, -1, (2, 3, 5, 6)).astype(np.float32)
    pool = functional.max_pool2d if kind == "MaxPool" else functional.avg_pool2d
    for top, left, bottom, right in WIDTHS:
        pads = f"0, 0, {top}, {left}, 0, 0, {bottom}, {right}"
        text = f"""(float[2, 3, 5, 6] x) => (y) <int64[8] pads = {{{pads}}}, float zero = {{0}}> {{
            a = Tanh(x) b = Pad(a, pads{value})
            y = {kind} <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = {int(ceil)}> (b)
        }}"""
        padded = functional.pad(torch.tensor(x).double().tanh(), (left, right, top, bottom))
        found = _results(text, opset, x, level)
        assert_near(found, pool(padded, 2, ceil_mode=ceil).numpy())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("opset", [13, 21])
def test_pads_before_pools_with_margins(opset: int, level: Level) -> None:
    x = np.random.default_rng(0).uniform(-2, -1, (2, 3, 5)).astype(np.float32)
    text = """(float[2, 3, 5] x) => (y) <int64[6] pads = {0, 0, 1, 0, 0, 1}> {
        a = Tanh(x) b = Pad(a, pads) y = MaxPool <kernel_shape = [3], pads = [1, 1]> (b)
    }"""
    padded = functional.pad(torch.tensor(x).double().tanh(), (1, 1))
    found = _results(text, opset, x, level)
    assert_near(found, functional.max_pool1d(padded, 3, 1, 1).numpy())


class _Padded(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = functional.silu(x)
        largest = functional.max_pool2d(functional.pad(a, (1, 1, 1, 1)), 3, 2)
        return largest + nn.ZeroPad2d(1)(a).amax() + functional.avg_pool2d(nn.ZeroPad2d(3)(a), 3, 3)


def test_modules_that_pad() -> None:
    module, x = _Padded(), -torch.rand(2, 3, 8, 8)
    with sambarun.load(sambac.compile(module, inputs=(x,))) as executable:
        found = executable.run({"x": x.numpy()})["output"]
    assert_near(found, module(x.double()).numpy())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_what_was_enlarged_and_cut_trains(cut: int, level: Level) -> None:
    """Its gradient is a pool of what is padded."""
    text = f"""<ir_version: 9, opset_import: ["": 18]> g (float[1, 1, n, 4] z) => (float loss)
        <float[1, 1, 3, 2] w = {{1, 2, 3, 4, 5, 6}}, float[4] scales = {{1, 1, 2, 2}},
         int64[1] starts = {{{cut}}}, int64[1] ends = {{6}}, int64[1] axes = {{2}}> {{
            a = Mul(w, w)
            b = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric",
                nearest_mode = "floor"> (a, , scales)
            c = Slice(b, starts, ends, axes) d = Mul(c, z) loss = ReduceSum <keepdims = 0> (d)
        }}""".replace("[1, 1, n, 4]", f"[1, 1, {6 - cut}, 4]")
    options = sambac.CompileOptions(level=level, train=True)
    z = np.arange((6 - cut) * 4, dtype=np.float32).reshape(1, 1, -1, 4)
    with sambarun.load(sambac.compile(onnx.parser.parse_model(text), options)) as executable:
        executable.step({"z": z})
        found = executable.read("w__grad")["w__grad"]
    w = torch.arange(1.0, 7.0, dtype=torch.float64).reshape(1, 1, 3, 2).requires_grad_()
    enlarged = (w * w).repeat_interleave(2, 2).repeat_interleave(2, 3)
    (wanted,) = torch.autograd.grad((enlarged[:, :, cut:] * torch.tensor(z)).sum(), w)
    assert_near(found, wanted.numpy())


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("wide", [1, 2])
def test_ranges_behind_padded_pools_are_measured_with_the_zeros(
    wide: int, opset: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers below 0, which are the largest of a window only where there is no zero."""
    text = f"""<ir_version: 7, opset_import: ["": {opset}]> g (float[2, 8, 6, 6] x) => (y)
        <int64[8] pads = {{0, 0, {wide}, {wide}, 0, 0, {wide}, {wide}}}> {{
            a = Conv <pads = [1, 1, 1, 1]> (x, v, b) p = Pad(a, pads)
            m = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (p) y = Conv(m, w)
        }}"""
    rng = np.random.default_rng(0)
    weights = {
        "v": rng.normal(0, 0.1, (16, 8, 3, 3)).astype(np.float32),
        "b": np.full(16, -6, np.float32),
        "w": rng.uniform(0.05, 0.15, (8, 16, 3, 3)).astype(np.float32),
    }
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(w, n) for n, w in weights.items())
    x = rng.normal(size=(2, 8, 6, 6)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    found: list[dict[str, tuple[float, float]]] = []
    module = sys.modules[quantize.__module__]
    measured = module.ranges_of
    monkeypatch.setattr(
        module, "ranges_of", lambda *given: found.append(measured(*given)) or found[-1]
    )
    options = sambac.CompileOptions(precision="int8", calibrate=str(tmp_path / "x.npz"))
    program = sambac.compile(model, options)
    v, b, w = (torch.tensor(weights[name]).double() for name in "vbw")
    pooled = functional.conv2d(torch.tensor(x).double(), v, b, padding=1)
    pooled = functional.max_pool2d(functional.pad(pooled, (wide,) * 4), 2)
    expected = functional.conv2d(pooled, w).numpy()
    (ranges,) = found
    assert ranges["m"] == pytest.approx((pooled.min().item(), 0))
    assert ranges["y"] == pytest.approx((expected.min(), 0))
    with sambarun.load(program) as executable:
        (y,) = executable.run({"x": x}).values()
    assert np.linalg.norm(y - expected) < 0.01 * np.linalg.norm(expected)
