"""Counts that programs give."""

from __future__ import annotations

from .errors import PyBudaError


def counted(name: str, count: object) -> int:
    """Return a number from 0 on. Raises `PyBudaError` for anything else."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise PyBudaError(f"{name} is {count!r}; a whole number from 0 on was expected")
    return count
