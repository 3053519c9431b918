"""Arrays as a device holds them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .block_float import decode, encode
from .fidelity import truncated
from .formats import FLOAT32, NumberFormat


def rounded(
    x: NDArray[np.float32], form: NumberFormat, rule: str = "host", axis: int = -1
) -> NDArray[np.float32]:
    """Return float32 numbers, each the one that `form` holds for it; the shape stays.

    Blocks go along `axis`, and `rule` is that of block formats (`block_float.ROUNDING_RULES`).
    Float16 and Float16_b round to the nearest number, of two to the even one; TF32 and Lf8 cut
    digits off. Lf8 has no infinities, what is above its range becomes its largest number, and what
    is below its range becomes 0.
    """
    if form is FLOAT32:
        return x
    if form.block:
        turned = np.moveaxis(np.atleast_1d(x), axis, -1)
        return np.moveaxis(decode(encode(turned, form, rule)), -1, axis).reshape(x.shape)
    return _ROUNDED[form.name](x, form)


def _half(x: NDArray[np.float32], _form: NumberFormat) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)


def _brain(x: NDArray[np.float32], _form: NumberFormat) -> NDArray[np.float32]:
    bits = np.ascontiguousarray(x).view(np.uint32)
    even = (bits >> 16) & 1
    short = ((bits + 0x7FFF + even) & 0xFFFF0000).view(np.float32)
    return np.where(np.isnan(x), x, short)


def _cut(x: NDArray[np.float32], form: NumberFormat) -> NDArray[np.float32]:
    return truncated(x, form.digits)


def _small(x: NDArray[np.float32], form: NumberFormat) -> NDArray[np.float32]:
    top = np.ldexp(form.most, form.highest - form.digits + 1)
    inside = truncated(np.clip(x, -top, top).astype(np.float32), form.digits)
    return np.where(np.abs(x) < 2.0**form.lowest, np.float32(0), inside)


_ROUNDED = {"Float16": _half, "Float16_b": _brain, "TF32": _cut, "Lf8": _small}
