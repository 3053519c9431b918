"""What this API raises."""

from __future__ import annotations

from typing import Any

from pef.arguments import shown


class PyBudaError(RuntimeError):
    """A mistake of the program: what came, and what was expected."""


def counted(name: str, count: object) -> int:
    """Return a number from 0 on. Raises `PyBudaError` for anything else."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise PyBudaError(f"{name} is {count!r}; a whole number from 0 on was expected")
    return count


def require_kind(**given: tuple[object, type]) -> None:
    """Raise `PyBudaError` for an argument that is neither None nor of its type."""
    for name, (value, kind) in given.items():
        if value is not None and not isinstance(value, kind):
            raise PyBudaError(
                f"{name} is {shown(value)}; a {kind.__module__}.{kind.__name__} was expected"
            )


def require_queues(**given: object) -> None:
    """Raise `PyBudaError` for an argument that is neither None nor a queue."""
    for name, value in given.items():
        if value is not None and not (hasattr(value, "put") and hasattr(value, "get")):
            raise PyBudaError(f"{name} is {shown(value)}; a queue.Queue was expected")


def listed(what: str, given: object, kind: type | tuple[type, ...], of: str) -> list[Any]:
    """Return a list of instances of `kind`, which are `of` something. Raises `PyBudaError` else."""
    if not isinstance(given, list | tuple):
        raise PyBudaError(f"{what} is {shown(given)}; a list of {of} was expected")
    for index, each in enumerate(given):
        if not isinstance(each, kind):
            raise PyBudaError(f"{what}[{index}] is {shown(each)}; {what} is a list of {of}")
    return [*given]
