"""SambaTensors from sizes and numbers: the creation functions of torch, with names.

Sizes are numbers or one sequence of them. Every function takes the keywords of `Options`; values
are those that torch makes from the same seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias, TypedDict, Unpack

import torch
from torch import Tensor

from sambaflow.samba.arguments.keywords import no_keyword

from .tensor import SambaTensor

_Sizes: TypeAlias = int | Iterable[int]
_NAMING = ("name", "batch_dim", "named_dims", "sized_dims", "region_name")


class Options(TypedDict, total=False):
    """What creation functions take besides what the tensor holds.

    The first five are those of `SambaTensor`, the others those of torch.
    """

    name: str | None
    batch_dim: int | None
    named_dims: Iterable[str | None] | None
    sized_dims: Iterable[str | None] | None
    region_name: str | None
    dtype: torch.dtype | None
    device: str | torch.device | None
    requires_grad: bool
    generator: torch.Generator | None
    layout: torch.layout
    memory_format: torch.memory_format
    pin_memory: bool


class SizedOptions(Options, total=False):
    """What functions of sizes take: `size` instead of sizes by position."""

    size: Iterable[int]


class BoundOptions(Options, total=False):
    """What `arange` takes: its bounds by name."""

    start: float
    end: float
    step: float


class RangeOptions(SizedOptions, total=False):
    """What `randint` takes: its limits by name."""

    low: int
    high: int


class NormalOptions(SizedOptions, total=False):
    """What `normal` takes: its mean and standard deviation by name."""

    mean: float | Tensor
    std: float | Tensor


def randn(*sizes: _Sizes, **options: Unpack[SizedOptions]) -> SambaTensor:
    """Return normally distributed values, of mean 0 and variance 1."""
    return _made(torch.randn, sizes, options, SizedOptions)


def rand(*sizes: _Sizes, **options: Unpack[SizedOptions]) -> SambaTensor:
    """Return values from 0 to below 1, all equally likely."""
    return _made(torch.rand, sizes, options, SizedOptions)


def zeros(*sizes: _Sizes, **options: Unpack[SizedOptions]) -> SambaTensor:
    """Return zeros."""
    return _made(torch.zeros, sizes, options, SizedOptions)


def ones(*sizes: _Sizes, **options: Unpack[SizedOptions]) -> SambaTensor:
    """Return ones."""
    return _made(torch.ones, sizes, options, SizedOptions)


def empty(*sizes: _Sizes, **options: Unpack[SizedOptions]) -> SambaTensor:
    """Return memory as it comes."""
    return _made(torch.empty, sizes, options, SizedOptions)


def full(size: Iterable[int], fill_value: float, **options: Unpack[Options]) -> SambaTensor:
    """Return a tensor full of `fill_value`."""
    return _made(torch.full, (tuple(size), fill_value), options, Options)


def eye(n: int, m: int | None = None, **options: Unpack[Options]) -> SambaTensor:
    """Return ones on the diagonal, zeros elsewhere: `n` rows, and `m` columns, or as many."""
    return _made(torch.eye, (n, n if m is None else m), options, Options)


def arange(*bounds: float, **options: Unpack[BoundOptions]) -> SambaTensor:
    """Return the numbers of `range(*bounds)`: end, start and end, or start, end and step."""
    return _made(torch.arange, bounds, options, BoundOptions)


def randint(*limits_and_size: _Sizes, **options: Unpack[RangeOptions]) -> SambaTensor:
    """Return whole numbers: `randint(high, size)` from 0, `randint(low, high, size)` from `low`."""
    return _made(torch.randint, limits_and_size, options, RangeOptions)


def normal(*mean_and_deviation: float | Tensor, **options: Unpack[NormalOptions]) -> SambaTensor:
    """Return normally distributed values, of means and standard deviations for each or for all.

    One of the two is a tensor, of float and in the shape of the result, or `size` says the shape.
    """
    return _made(torch.normal, mean_and_deviation, options, NormalOptions)


def tensor(data: object, **options: Unpack[Options]) -> SambaTensor:
    """Return a copy of numbers, lists of numbers, or an array."""
    return _made(torch.tensor, (data,), options, Options)


def randn_like(input: Tensor, **options: Unpack[Options]) -> SambaTensor:
    """Return values as `randn` makes them, of the shape and type of `input`."""
    return _made(torch.randn_like, (input,), options, Options)


def rand_like(input: Tensor, **options: Unpack[Options]) -> SambaTensor:
    """Return values as `rand` makes them, of the shape and type of `input`."""
    return _made(torch.rand_like, (input,), options, Options)


def zeros_like(input: Tensor, **options: Unpack[Options]) -> SambaTensor:
    """Return zeros of the shape and type of `input`."""
    return _made(torch.zeros_like, (input,), options, Options)


def ones_like(input: Tensor, **options: Unpack[Options]) -> SambaTensor:
    """Return ones of the shape and type of `input`."""
    return _made(torch.ones_like, (input,), options, Options)


def empty_like(input: Tensor, **options: Unpack[Options]) -> SambaTensor:
    """Return memory as it comes, of the shape and type of `input`."""
    return _made(torch.empty_like, (input,), options, Options)


def full_like(input: Tensor, fill_value: float, **options: Unpack[Options]) -> SambaTensor:
    """Return a tensor full of `fill_value`, of the shape and type of `input`."""
    return _made(torch.full_like, (input, fill_value), options, Options)


def _made(
    function: Callable[..., Tensor],
    args: Iterable[object],
    options: Options,
    kind: type[Options],
) -> SambaTensor:
    """Return what `function` makes, named as `options` say; the rest of them are for torch.

    Raises `TypeError` for options that are not of their `kind`.
    """
    given: dict[str, object] = {**options}
    known = kind.__annotations__
    unknown = [word for word in given if word not in known]
    if unknown:
        raise TypeError(f"{function.__name__}() {no_keyword(unknown, known)}")
    naming = {key: given.pop(key) for key in _NAMING if key in given}
    named: Callable[..., SambaTensor] = SambaTensor
    return named(function(*args, **given), **naming)
