"""The one guard around parsers of other people: whatever they raise, the file is at fault.

Parsers fail in as many ways as their code can stumble over a damaged file: with errors of their
own, and with those of Python for a wrong type, a missing key, a number that overflows or nesting
that is too deep. Callers name none of these; they say what to raise instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LONGEST = 300


@contextmanager
def reading(refuse: Callable[[Exception], Exception]) -> Iterator[None]:
    """Raise what `refuse` makes of whatever a foreign parser raises inside of the block.

    Errors of the operating system pass, and so does a lack of memory: they say nothing of the
    content. Only foreign code belongs into the block, or a fault of ours is blamed on the file.
    """
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:  # their code may stumble in any way, see above
        raise refuse(error) from error


def why(error: BaseException) -> str:
    """Return on one line what `error` says; of a long text its beginning."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    text = " ".join(str(error).split())
    if isinstance(error, KeyError):
        text = f"there is no {text}"
    if not text:
        return type(error).__name__
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
