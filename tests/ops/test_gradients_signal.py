"""Gradients of Fourier transforms, against torch and differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gradient_check import Case, check_against_torch, check_finite_differences

Array = np.ndarray[Any, np.dtype[Any]]

RNG = np.random.default_rng(0)
REAL = RNG.normal(size=(2, 6, 1))
COMPLEX = RNG.normal(size=(2, 6, 2))
BLOCK = RNG.normal(size=(2, 5, 3, 2))
SIGNAL = RNG.normal(size=(2, 17, 1))
WINDOW = RNG.uniform(0.2, 1, 5)


def numbers(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(x) if x.shape[-1] == 2 else x[..., 0]


def transform(
    label: str, x: Array, *, length: int | None = None, axis: int = -2, **attributes: int
) -> Case:
    inverse, onesided = attributes.get("inverse"), attributes.get("onesided")
    dim = axis % x.ndim

    def expected(x: torch.Tensor, *_: Any) -> torch.Tensor:
        values = numbers(x)
        if inverse and onesided:
            return torch.fft.irfft(values, length, dim)[..., None]
        function = torch.fft.ifft if inverse else torch.fft.rfft if onesided else torch.fft.fft
        return torch.view_as_real(function(values, length, dim))

    sizes = None if length is None else np.array(length)
    return Case("DFT", (x, sizes, np.array(axis)), expected, attributes, label=label)


def short_time(label: str, window: Array | None, length: int | None, onesided: int) -> Case:
    def expected(
        x: torch.Tensor, step: torch.Tensor, w: torch.Tensor | None, _: Any = None
    ) -> torch.Tensor:
        size = length or WINDOW.size
        frames = numbers(x).unfold(1, size, int(step))
        function = torch.fft.rfft if onesided else torch.fft.fft
        return torch.view_as_real(function(frames if w is None else frames * w))

    inputs: tuple[Array | None, ...] = (SIGNAL, np.array(3), window)
    if length is not None:
        inputs = (*inputs, np.array(length))
    return Case("STFT", inputs, expected, {"onesided": onesided}, label=label)


CASES = [
    transform("real", REAL),
    transform("complex", COMPLEX),
    transform("half", REAL, onesided=1),
    transform("half of odd", REAL, onesided=1, length=5),
    transform("filled", COMPLEX, length=9),
    transform("cut", COMPLEX, length=4),
    transform("other axis", BLOCK, axis=1),
    transform("back", COMPLEX, inverse=1),
    transform("back, other axis", BLOCK, inverse=1, axis=1),
    transform("back to real", COMPLEX, inverse=1, onesided=1),
    short_time("window", WINDOW, None, 1),
    short_time("whole spectrum", WINDOW, None, 0),
    short_time("no window", None, 6, 1),
]  # fmt: skip

# onnxruntime's forward operator takes another number of frequencies here than numpy and torch.
OTHER_LENGTHS = [
    transform("back to odd", COMPLEX, inverse=1, onesided=1, length=9),
    transform("back to more", COMPLEX, inverse=1, onesided=1, length=14),
]


@pytest.mark.parametrize("case", [*CASES, *OTHER_LENGTHS], ids=str)
def test_gradients_are_differences(case: Case):
    check_finite_differences(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_those_of_torch(case: Case):
    check_against_torch(case)
