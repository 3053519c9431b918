"""Local response normalisation of any rank and window: the kernel takes images and odd windows."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from near import assert_near

import sambac
import sambarun
from sambac.options import Level

DTYPES = {"double": np.float64, "float16": np.float16}
ALPHA, BETA, BIAS = 0.3, 0.6, 1.5


def normalised(x: np.ndarray, size: int) -> np.ndarray:
    channels, before = x.shape[1], (size - 1) // 2
    around = [(0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)]
    squares = np.pad(x.astype(np.float64) ** 2, around)
    total = sum(squares[:, at : at + channels] for at in range(size))
    return np.asarray(x / (BIAS + ALPHA / size * total) ** BETA)


def text(shape: str, size: int, dtype: str = "float") -> str:
    return (
        f'<ir_version: 9, opset_import: ["": 18]> g ({dtype}[{shape}] x) => (y) {{ '
        f"y = LRN <size = {size}, alpha = {ALPHA}, beta = {BETA}, bias = {BIAS}> (x) }}"
    )


@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize(
    ("declared", "shape", "size"),
    [
        ("2, 5", (2, 5), 3),
        ("2, 5, 4", (2, 5, 4), 3),
        ("n, c, l", (2, 5, 4), 3),
        ("2, 5, 4, 3, 2", (2, 5, 4, 3, 2), 1),
        ("2, 5, 4, 3", (2, 5, 4, 3), 2),
        ("n, 5, h, 3", (2, 5, 4, 3), 8),
        ("n, 5, l", (0, 5, 4), 3),
    ],
)
def test_any_rank_and_window(
    declared: str, shape: tuple[int, ...], size: int, level: Level
) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    model = onnx.parser.parse_model(text(declared, size))
    program = sambac.compile(model, sambac.CompileOptions(level=level))
    with sambarun.load(program) as executable:
        assert_near(executable.run({"x": x})["y"], normalised(x, size))


@pytest.mark.parametrize("dtype", ["double", "float16"])
def test_other_types(dtype: str) -> None:
    model = onnx.parser.parse_model(text("2, 5, 4", 2, dtype))
    with sambarun.load(sambac.compile(model)) as executable:
        x = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(DTYPES[dtype])
        found = executable.run({"x": x})["y"]
    assert found.dtype == x.dtype
    tolerance = {"double": 1e-6, "float16": 2e-3}[dtype]
    np.testing.assert_allclose(found.astype(np.float64), normalised(x, 2), atol=tolerance)


def test_unknown_channels_in_an_even_window() -> None:
    with pytest.raises(sambac.CompileError, match="window of 2, an even number, on an unknown"):
        sambac.compile(onnx.parser.parse_model(text("n, c, h, w", 2)))


def test_it_trains() -> None:
    rng = np.random.default_rng(0)
    w = rng.standard_normal((2, 5, 3)).astype(np.float32)
    numbers = ", ".join(map(str, w.ravel().tolist()))
    model = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["": 18]> g (float[2, 5, 3] x) => (float loss)
        <float[2, 5, 3] w = {{{numbers}}}> {{
            a = LRN <size = 2, alpha = {ALPHA}, beta = {BETA}, bias = {BIAS}> (w)
            b = LRN <size = 3, alpha = {ALPHA}, beta = {BETA}, bias = {BIAS}> (a)
            c = Mul(b, x)
            loss = ReduceSum <keepdims = 0> (c)
        }}"""
    )
    x = rng.standard_normal(w.shape).astype(np.float32)

    def loss(at: np.ndarray) -> float:
        return float((normalised(normalised(at, 2), 3) * x).sum())

    wanted, step = np.zeros(w.shape), 1e-6
    for place in np.ndindex(*w.shape):
        moved = np.zeros(w.shape)
        moved[place] = step
        wanted[place] = (loss(w + moved) - loss(w - moved)) / (2 * step)
    with sambarun.load(sambac.compile(model, sambac.CompileOptions(train=True))) as executable:
        executable.step({"x": x})
        assert_near(executable.read("w__grad")["w__grad"], wanted)
