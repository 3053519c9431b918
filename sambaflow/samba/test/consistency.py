"""The same inputs give the same results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import ParamSpec, TypeAlias, TypeVar

import numpy as np
import torch

from sambaflow.samba.arguments.kinds import COUNT
from sambaflow.samba.tensors.tensor import to_torch

__all__ = ["consistency_test"]

P = ParamSpec("P")
R = TypeVar("R")

_PLAIN = (bool, int, float, complex, str, bytes, np.generic)
_Kept: TypeAlias = "torch.Tensor | tuple[object, ...] | str"
"""What is kept of a result: a tensor, what an array is and holds, or a plain value as text."""


def consistency_test(n_iterations: int = 2) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator, `@consistency_test()`, for the test of an application.

    What is decorated is called `n_iterations` times with the same arguments, and what it returns is
    compared bit for bit: pairs of names and tensors, as applications return them, a dict of these,
    tensors alone, or None; arrays, numbers and texts too, in lists, tuples and dicts at any depth.
    A NaN is the same as a NaN of its own bits, and 0 is not -0: the
    question is whether runs repeat, not whether they are right. The result of the first call is
    returned. The application sees to it that a call changes nothing that the next one reads: a
    learning rate of 0, gradients cleared.

    The decorated function raises AssertionError that names the results that were not always the
    same, or TypeError for what cannot be compared. Raises TypeError for what is no number,
    ValueError for fewer than two calls.
    """
    if not COUNT.fits(n_iterations):
        raise TypeError(
            f"consistency_test is given a {type(n_iterations).__name__}; it takes how often to "
            f"call what it decorates, and is called itself: write @consistency_test()"
        )
    if n_iterations < 2:
        raise ValueError(f"n_iterations is {n_iterations}, expected 2 or more to compare")

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def repeated(*args: P.args, **kwargs: P.kwargs) -> R:
            result = function(*args, **kwargs)
            first = _copies(result)
            unlike: dict[str, int] = {}
            for number in range(1, n_iterations):
                _compare(first, _copies(function(*args, **kwargs)), number, unlike)
            if unlike:
                found = ", ".join(f"{name} (run {number})" for name, number in unlike.items())
                raise AssertionError(f"results differ between runs of the same inputs: {found}")
            return result

        return repeated

    return decorated


def _compare(
    first: Mapping[str, _Kept], now: Mapping[str, _Kept], number: int, unlike: dict[str, int]
) -> None:
    """Add to `unlike` what run `number` gave otherwise than the first one."""
    for name in dict.fromkeys([*first, *now]):
        if not _same(first.get(name), now.get(name)):
            unlike.setdefault(name, number)


def _same(before: _Kept | None, after: _Kept | None) -> bool:
    if isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor):
        return same_bits(before, after)
    return type(before) is type(after) and before == after


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether the tensors have the same type, shape and bytes, NaNs included."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    return torch.equal(*(_bytes(tensor) for tensor in (left, right)))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _copies(result: object) -> dict[str, _Kept]:
    """Return copies of what is in `result`, by name: memory may be that of the next run."""
    found: dict[str, _Kept] = {}
    for name, value in _named(result, "result"):
        spelled = name if name not in found else f"{name} ({len(found)})"
        if isinstance(value, torch.Tensor):
            found[spelled] = to_torch(value).detach().clone()
        elif isinstance(value, np.ndarray):
            found[spelled] = (str(value.dtype), value.shape, value.tobytes())
        else:
            found[spelled] = repr(value)
    return found


def _named(result: object, name: str) -> Iterator[tuple[str, object]]:
    """Yield what is compared in `result`; what has no name of its own is numbered.

    Raises TypeError for what cannot be compared, and for what can be read but once.
    """
    if isinstance(result, (torch.Tensor, np.ndarray, *_PLAIN)):
        yield name, result
    elif isinstance(result, Mapping):
        for key, value in result.items():
            yield from _named(value, str(key))
    elif isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], str):
        yield from _named(result[1], result[0])
    elif isinstance(result, list | tuple):
        for number, value in enumerate(result):
            yield from _named(value, f"{name} {number}")
    elif result is not None:
        raise TypeError(
            f"{name} is a {type(result).__name__}, which runs cannot be compared by; return "
            f"tensors, arrays or numbers, in lists, tuples or dicts"
        )
