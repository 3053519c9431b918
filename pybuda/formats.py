"""Which data format holds which type of torch, and what the compiler calls it."""

from __future__ import annotations

import torch

from pef.arguments import shown
from sambac.numerics import FIDELITIES, FORMATS

from ._C import DataFormat, MathFidelity
from .errors import PyBudaError

_FORMATS = {
    torch.float16: DataFormat.Float16,
    torch.bfloat16: DataFormat.Float16_b,
    torch.float32: DataFormat.Float32,
    torch.int8: DataFormat.Int8,
    torch.int32: DataFormat.Int32,
    torch.bool: DataFormat.Bfp2_b,
    torch.int64: DataFormat.Int32,
}
"""64-bit integers are indices: the device keeps them exact, and calls them Int32."""


def format_of(dtype: torch.dtype) -> DataFormat:
    """Return the format in which the device gets a torch tensor. Raises `PyBudaError` for none."""
    if (found := _FORMATS.get(dtype)) is None:
        known = ", ".join(str(known).removeprefix("torch.") for known in _FORMATS)
        raise PyBudaError(f"the device has no format for {dtype}; it takes {known}")
    return found


def held_as(form: object, what: str) -> str:
    """Return the compiler's name for a format of floating-point numbers, nothing for None.

    Raises `PyBudaError` for one that holds none; `what` says what was to have it.
    """
    if form is None:
        return ""
    if not isinstance(form, DataFormat) or form.name not in FORMATS:
        known = ", ".join(each.name for each in DataFormat if each.name in FORMATS)
        raise PyBudaError(f"{what} is {shown(form)}; floating-point numbers are held as {known}")
    return form.name


def fidelity_name(fidelity: object, what: str) -> str:
    """Return the compiler's name for a fidelity, nothing for None. Raises `PyBudaError` else."""
    if fidelity is None:
        return ""
    if not isinstance(fidelity, MathFidelity) or fidelity.name not in FIDELITIES:
        raise PyBudaError(f"{what} is {shown(fidelity)}; choose {', '.join(FIDELITIES)}")
    return fidelity.name


def block_format(bits: int, like: DataFormat | None) -> DataFormat:
    """Return the block format of so many bits, with exponents as `like` has them (8 bits for none).

    Raises `PyBudaError` unless there is one.
    """
    wide = like is None or like is DataFormat.Float32 or like.name.endswith("_b")
    if bits not in (8, 4, 2):
        raise PyBudaError(f"{shown(bits)} bits were asked for; block formats have 8, 4 or 2")
    return DataFormat[f"Bfp{bits}{'_b' if wide else ''}"]
