"""Arrays as a device holds them: in formats of single numbers, and in block floating point.

In a block 16 numbers side by side share an exponent. A number of a block is  sign * magnitude * 2
** (exponent - digits + 1),  its magnitude a whole number of `digits` bits whose leading one is
written out, the exponent that of the largest number of the block. How a magnitude is rounded is a
rule:

    host       to the nearest, of two to the larger one: what the host does to what it sends
    packer     as host to 7 digits; fewer are cut from these: what the device does to results
    truncate   cut off: what the vendor's checks of kernels do

A magnitude that would need one more digit is the largest one. In the formats of 5-bit exponents
every number is first brought into their range: what is above it becomes the largest number, what
is below it and not 0 becomes 2 ** -15. Infinities become the largest number of their block, NaN
stays NaN, and 0 never has a sign.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from .fidelity import LARGEST, truncated
from .formats import FLOAT32, FORMATS, NumberFormat

BLOCK = 16
"""How many numbers share an exponent."""

_PACKED = FORMATS["Bfp8_b"].digits


@dataclass(frozen=True)
class Blocks:
    """An array in a block `format`.

    `magnitudes` have their signs and the shape of the array (float64 of whole numbers, or NaN);
    `exponents`, of shape (..., blocks), are those of the blocks along the last axis, with the
    format's bias.
    """

    format: NumberFormat
    magnitudes: NDArray[np.float64]
    exponents: NDArray[np.int64]


def encode(x: NDArray[np.float32], form: NumberFormat, rule: str = "host") -> Blocks:
    """Return float32 numbers in a block format, blocks along the last axis from its beginning.

    An incomplete last block counts as filled up with zeros. Raises `KeyError` for a rule that is
    none of `ROUNDING_RULES`.
    """
    blocks = _in_blocks(np.asarray(x, np.float64))
    sizes = _in_range(np.abs(blocks), form)
    largest = np.minimum(np.fmax.reduce(sizes, axis=-1, keepdims=True), LARGEST)
    exponents = np.maximum(np.frexp(largest)[1].astype(np.int64) - 1, form.lowest)
    exponents[largest == 0] = form.lowest
    exponents[np.isnan(largest)] = form.lowest
    units = np.ldexp(sizes, form.digits - 1 - exponents)
    kept = np.where(blocks < 0, -1.0, 1.0) * ROUNDING_RULES[rule](units, form)
    magnitudes = kept.reshape(*blocks.shape[:-2], -1)[..., : np.shape(x)[-1]] + 0.0
    return Blocks(form, magnitudes, exponents[..., 0] + form.bias)


def decode(blocks: Blocks) -> NDArray[np.float32]:
    """Return the numbers that are in blocks."""
    form = blocks.format
    last = blocks.exponents - form.bias - (form.digits - 1)
    spread = np.repeat(last, BLOCK, axis=-1)[..., : blocks.magnitudes.shape[-1]]
    return np.ldexp(blocks.magnitudes, spread).astype(np.float32)


def _in_blocks(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `x` with its last axis in two: blocks, and what is in them."""
    missing = -x.shape[-1] % BLOCK
    padded = np.pad(x, [*[(0, 0)] * (x.ndim - 1), (0, missing)])
    return padded.reshape(*x.shape[:-1], -1, BLOCK)


def _in_range(sizes: NDArray[np.float64], form: NumberFormat) -> NDArray[np.float64]:
    """Return magnitudes of numbers that a private exponent of the format can hold."""
    if form.bias == FORMATS["Float32"].bias:
        return sizes
    top = np.ldexp(2 - 2.0**-23, form.highest)
    return np.where(sizes > 0, np.clip(sizes, 2.0**form.lowest, top), sizes)


def _nearest(units: NDArray[np.float64], form: NumberFormat) -> NDArray[np.float64]:
    return np.minimum(np.floor(units + 0.5), form.most)


def _cut_shared(units: NDArray[np.float64], form: NumberFormat) -> NDArray[np.float64]:
    return np.minimum(np.floor(units), form.most)


def _packed(units: NDArray[np.float64], form: NumberFormat) -> NDArray[np.float64]:
    more = 2.0 ** (_PACKED - form.digits)
    return np.floor(np.minimum(np.floor(units * more + 0.5), 2.0**_PACKED - 1) / more)


_Rule = Callable[[NDArray[np.float64], NumberFormat], NDArray[np.float64]]

ROUNDING_RULES: Mapping[str, _Rule] = MappingProxyType(
    {"host": _nearest, "packer": _packed, "truncate": _cut_shared}
)
"""How magnitudes are rounded, by the names of the rules; the first is the default."""


def rounded(
    x: NDArray[np.float32], form: NumberFormat, rule: str = "host", axis: int = -1
) -> NDArray[np.float32]:
    """Return float32 numbers, each the one that `form` holds for it; the shape stays.

    Blocks go along `axis`, and `rule` is that of block formats (see `ROUNDING_RULES`).
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
