"""Integers for numbers, by a scale and a zero point."""

from __future__ import annotations

import torch

from pybuda.errors import PyBudaError
from pybuda.tensor import Tensor

from .apply import Operand, apply

_INTEGERS = (torch.int8, torch.uint8, torch.int32)


def Quantize(
    name: str,
    operandA: Operand,
    operandB: Operand,
    zero_point: int,
    axis: int,
    out_dtype: torch.dtype,
) -> Tensor:
    """Return round(a / scale) + zero point as integers; halves go to even.

    The scale is `operandB`: one number, or one for each index of `axis`. What is beyond the range
    of `out_dtype`, one of int8, uint8 and int32, becomes its end.
    """

    def quantized(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        numbers = torch.round(x.float() / _along(scale.float(), x, axis)) + zero_point
        return _clamped("Quantize", numbers, out_dtype)

    return apply(name, quantized, operandA, operandB)


def Dequantize(
    name: str,
    operandA: Operand,
    operandB: Operand,
    zero_point: int,
    axis: int = -1,
    out_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return (a - zero point) * scale; `operandB` is the scale, as in `Quantize`."""

    def dequantized(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return ((x.float() - zero_point) * _along(scale.float(), x, axis)).to(out_dtype)

    return apply(name, dequantized, operandA, operandB)


def Requantize(
    name: str,
    operandA: Operand,
    operand_inp_scale: Operand,
    operand_out_scale: Operand,
    input_zero_point: float,
    output_zero_point: float,
    out_dtype: torch.dtype,
    axis: int = -1,
) -> Tensor:
    """Return integers of one scale as integers of another: round(a * in / out + zero point).

    Raises `PyBudaError` for an input zero point other than 0, as the original does.
    """
    if input_zero_point != 0:
        raise PyBudaError(f"Requantize: the input zero point is {input_zero_point}; 0 is supported")

    def requantized(x: torch.Tensor, came: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        scale = _along(came.float() / wanted.float(), x, axis)
        return _clamped("Requantize", torch.round(scale * x + output_zero_point), out_dtype)

    return apply(name, requantized, operandA, operand_inp_scale, operand_out_scale)


def _along(scale: torch.Tensor, x: torch.Tensor, axis: int) -> torch.Tensor:
    """Return a vector of scales, one for each index of `axis` of `x`, in a shape that fits `x`."""
    if scale.ndim != 1:
        return scale
    shape = [1] * x.ndim
    shape[axis] = scale.shape[0]
    return scale.reshape(shape)


def _clamped(kind: str, numbers: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if dtype not in _INTEGERS:
        raise PyBudaError(f"{kind}: {dtype} came as out_dtype; int8, uint8 and int32 are supported")
    if dtype is torch.int32:  # whose largest number float32 does not have
        return numbers.double().clamp(-(2**31), 2**31 - 1).to(dtype)
    limits = torch.iinfo(dtype)
    return numbers.clamp(limits.min, limits.max).to(dtype)
