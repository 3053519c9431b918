"""The same inputs give the same results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

from sambaflow.samba.arguments.kinds import COUNT
from sambaflow.samba.tensors.tensor import to_torch

__all__ = ["consistency_test"]

P = ParamSpec("P")
R = TypeVar("R")


def consistency_test(n_iterations: int = 2) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator, `@consistency_test()`, for the test of an application.

    What is decorated is called `n_iterations` times with the same arguments, and what it returns is
    compared bit for bit: pairs of names and tensors, as applications return them, a dict of these,
    tensors alone, or None. A NaN is the same as a NaN of its own bits, and 0 is not -0: the
    question is whether runs repeat, not whether they are right. The result of the first call is
    returned. The application sees to it that a call changes nothing that the next one reads: a
    learning rate of 0, gradients cleared.

    The decorated function raises AssertionError that names the results that were not always the
    same. Raises TypeError for what is no number, ValueError for fewer than two calls.
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
    first: Mapping[str, torch.Tensor],
    now: Mapping[str, torch.Tensor],
    number: int,
    unlike: dict[str, int],
) -> None:
    """Add to `unlike` what run `number` gave otherwise than the first one."""
    for name in dict.fromkeys([*first, *now]):
        before, after = first.get(name), now.get(name)
        if before is None or after is None or not same_bits(before, after):
            unlike.setdefault(name, number)


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether the tensors have the same type, shape and bytes, NaNs included."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    return torch.equal(*(_bytes(tensor) for tensor in (left, right)))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _copies(result: object) -> dict[str, torch.Tensor]:
    """Return copies of the tensors in `result`, by name: memory may be that of the next run."""
    return {name: to_torch(tensor).detach().clone() for name, tensor in _named(result, "result")}


def _named(result: object, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in `result`; those without a name of their own are numbered."""
    if isinstance(result, torch.Tensor):
        yield name, result
    elif isinstance(result, Mapping):
        for key, value in result.items():
            yield from _named(value, str(key))
    elif isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], str):
        yield from _named(result[1], result[0])
    elif isinstance(result, Iterable) and not isinstance(result, str):
        for number, value in enumerate(result):
            yield from _named(value, f"{name} {number}")
