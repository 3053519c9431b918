"""What an interrupt of a command looks like, while it is imported and later."""

from __future__ import annotations

INTERRUPTED = 130
"""The exit code of a command that was interrupted."""


def interrupt_behind(error: BaseException | None) -> BaseException | None:
    """Return the interrupt behind `error`, if there is one: imports make other errors of it.

    Errors may be raised from each other in a circle.
    """
    seen: set[int] = set()
    while error is not None and not isinstance(error, KeyboardInterrupt):
        if id(error) in seen:
            return None
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return error
