"""What this API raises."""

from __future__ import annotations


class PyBudaError(RuntimeError):
    """A mistake of the program: what came, and what was expected."""


def counted(name: str, count: object) -> int:
    """Return a number from 0 on. Raises `PyBudaError` for anything else."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise PyBudaError(f"{name} is {count!r}; a whole number from 0 on was expected")
    return count
