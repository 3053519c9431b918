"""What this API raises."""

from __future__ import annotations

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
