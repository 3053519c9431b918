"""Patterns of parallel loops: a function of elements, mapped over tensors and reduced.

They are made of torch's operations, so they run on the host, are traced and have gradients as all
others; the compiler fuses them like any chain of elementwise operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.arguments.kinds import (
    COUNT,
    FLAG,
    NUMBER,
    SIZES,
    TENSOR,
    ArgumentKind,
    instance,
    some,
)
from sambaflow.samba.utils.sntype import SNType
from sambaflow.submodules import on_demand

__all__ = [
    "Loop",
    "sn_fma",
    "sn_imm",
    "sn_iteridx",
    "sn_reduce",
    "sn_select",
    "sn_zipmapreduce",
]

__getattr__ = on_demand(__name__)  # says which name may be meant

Type = torch.dtype | SNType
"""An element type, torch's or the device's."""

_TYPE = instance((torch.dtype, SNType), "a type of torch, or an SNType")
_DIMS = ArgumentKind("a dimension, or a list of them", lambda v: COUNT.fits(v) or SIZES.fits(v))
_ELEMENT = ArgumentKind("a tensor, or a number", lambda v: TENSOR.fits(v) or NUMBER.fits(v))
_IMMEDIATE = ArgumentKind("a number", lambda v: NUMBER.fits(v) or FLAG.fits(v))

_REDUCTIONS: dict[str, Callable[[Tensor, list[int]], Tensor]] = {
    "sum": lambda x, dims: x.sum(dims, keepdim=True),
    "min": lambda x, dims: x.amin(dims, keepdim=True),
    "max": lambda x, dims: x.amax(dims, keepdim=True),
    "mean": lambda x, dims: x.mean(dims, keepdim=True),
}


@dataclass(frozen=True)
class Loop:
    """The loop that a function is mapped in: the sizes of its dimensions, and where it runs."""

    shape: tuple[int, ...]
    device: torch.device


_LOOP = instance(Loop, "the loop that the function was called with first")


@checked(inputs=some(TENSOR, "a list of tensors"), reduce_dim=_DIMS.or_none())
def sn_zipmapreduce(
    func: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    reduce_func: str | None = None,
    reduce_dim: int | Sequence[int] | None = None,
    stoc_accum: bool = False,
) -> Tensor:
    """Return `func(loop, *elements)` for all elements of `inputs`, which broadcast to one shape.

    `func` is called once, with tensors in place of elements, and uses elementwise operations.
    `reduce_func` (SUM, MIN, MAX or MEAN, in any case) reduces the dimensions `reduce_dim`, all of
    them by default, which stay with size 1. `stoc_accum` asks for stochastic rounding, which the
    device does not model. Raises ValueError without inputs and for another reduction.
    """
    if not inputs:
        raise ValueError("sn_zipmapreduce needs at least one input: their shape is the loop's")
    # PyTorch declares no types for this function.
    elements = torch.broadcast_tensors(*inputs)  # type: ignore[no-untyped-call]
    result = func(Loop(tuple(elements[0].shape), elements[0].device), *elements)
    if reduce_func is None:
        return result
    return sn_reduce(result, range(result.dim()) if reduce_dim is None else reduce_dim, reduce_func)


@checked(attrs=_LOOP, dtype=_TYPE.or_none())
def sn_iteridx(attrs: Loop, dim: int, dtype: Type | None = None) -> Tensor:
    """Return the index of each element in dimension `dim` of the loop `attrs`, int32 by default.

    Raises IndexError for a dimension that the loop does not have.
    """
    rank = len(attrs.shape)
    if not -rank <= dim < rank:
        raise IndexError(f"dimension {dim} of a loop of {rank} dimensions; the first is 0")
    sizes = [1] * rank
    sizes[dim] = attrs.shape[dim]
    index = torch.arange(attrs.shape[dim], device=attrs.device)
    return index.to(_reference(dtype or torch.int32)).view(sizes)


@checked(input=_IMMEDIATE, dtype=_TYPE)
def sn_imm(input: float, dtype: Type) -> Tensor:
    """Return the number `input` as an element of the type `dtype`."""
    return torch.tensor(input, dtype=_reference(dtype))


@checked(true_val=_ELEMENT, false_val=_ELEMENT)
def sn_select(cond: Tensor, true_val: Tensor, false_val: Tensor) -> Tensor:
    """Return `true_val` where `cond` is true, else `false_val`."""
    return torch.where(cond, true_val, false_val)


@checked(a=_ELEMENT, b=_ELEMENT, c=_ELEMENT)
def sn_fma(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Return `a * b + c`."""
    return a * b + c


@checked(dim=_DIMS)
def sn_reduce(input: Tensor, dim: int | Sequence[int], fn: str) -> Tensor:
    """Reduce dimensions of `input` by SUM, MIN, MAX or MEAN; they stay with size 1.

    Raises ValueError for another reduction.
    """
    reduction = _REDUCTIONS.get(fn.lower())
    if reduction is None:
        raise ValueError(f"there is no reduction {fn!r}; choose SUM, MIN, MAX or MEAN")
    return reduction(input, [dim] if isinstance(dim, int) else list(dim))


def _reference(dtype: Type) -> torch.dtype:
    return SNType.to_torch_reference_type(dtype) if isinstance(dtype, SNType) else dtype
