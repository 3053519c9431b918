"""Integers for numbers, by a scale and a zero point."""

from __future__ import annotations

import torch
from torch import Tensor

from pybuda.errors import PyBudaError

from .apply import operator

_INTEGERS = (torch.int8, torch.uint8, torch.int32)


@operator
def Quantize(
    operandA: Tensor, operandB: Tensor, zero_point: int, axis: int, out_dtype: torch.dtype
) -> Tensor:
    """Return round(a / scale) + zero point as integers; halves go to even.

    The scale is `operandB`: one number, or one for each index of `axis`. What is beyond the range
    of `out_dtype`, one of int8, uint8 and int32, becomes its end.
    """
    scale = _along(operandB.float(), operandA, axis)
    return _clamped("Quantize", torch.round(operandA.float() / scale) + zero_point, out_dtype)


@operator
def Dequantize(
    operandA: Tensor,
    operandB: Tensor,
    zero_point: int,
    axis: int = -1,
    out_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return (a - zero point) * scale; `operandB` is the scale, as in `Quantize`."""
    scale = _along(operandB.float(), operandA, axis)
    return ((operandA.float() - zero_point) * scale).to(out_dtype)


@operator
def Requantize(
    operandA: Tensor,
    operand_inp_scale: Tensor,
    operand_out_scale: Tensor,
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
    scale = _along(operand_inp_scale.float() / operand_out_scale.float(), operandA, axis)
    return _clamped("Requantize", torch.round(scale * operandA + output_zero_point), out_dtype)


def _along(scale: Tensor, x: Tensor, axis: int) -> Tensor:
    """Return a vector of scales, one for each index of `axis` of `x`, in a shape that fits `x`."""
    if scale.ndim != 1:
        return scale
    shape = [1] * x.ndim
    shape[axis] = scale.shape[0]
    return scale.reshape(shape)


def _clamped(kind: str, numbers: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype not in _INTEGERS:
        raise PyBudaError(f"{kind}: {dtype} came as out_dtype; int8, uint8 and int32 are supported")
    if dtype is torch.int32:  # whose largest number float32 does not have
        return numbers.double().clamp(-(2**31), 2**31 - 1).to(dtype)
    limits = torch.iinfo(dtype)
    return numbers.clamp(limits.min, limits.max).to(dtype)
