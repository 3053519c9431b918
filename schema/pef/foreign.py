"""The one guard around parsers of other people: whatever they raise, the file is at fault.

Parsers fail in as many ways as their code can stumble over a damaged file: with errors of their
own, and with those of Python for a wrong type, a missing key, a number that overflows or nesting
that is too deep. Callers name none of these; they say what to raise instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .errors import PefError

_LONGEST = 300


@contextmanager
def reading(refuse: Callable[[Exception], Exception]) -> Iterator[None]:
    """Raise what `refuse` makes of whatever a foreign parser raises inside of the block.

    Errors of the operating system pass, and so do a lack of memory and what a handler of signals
    raises: they say nothing of the content. Only foreign code belongs into the block, or a fault of
    ours is blamed on the file.
    """
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:  # their code may stumble in any way, see above
        if _is_from_signal(error):
            raise
        raise refuse(error) from error


def _is_from_signal(error: Exception) -> bool:
    """Tell whether a handler of signals, which Python calls within any code, has raised `error`."""
    import signal  # few processes meet an error here
    from traceback import walk_tb

    handlers = map(signal.getsignal, signal.valid_signals())
    codes = {code for one in handlers if (code := getattr(one, "__code__", None)) is not None}
    return any(frame.f_code in codes for frame, _ in walk_tb(error.__traceback__))


def one_line(text: str) -> str:
    """Return `text` on one line; of a long one its beginning."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def why(error: BaseException, shorten: Callable[[str], str] = one_line) -> str:
    """Return what an error of other people's code says, as a part of a sentence.

    That is what `shorten` leaves of its text. The text of a lookup that failed is a bare key or
    says nothing of what was looked up, and that of an assertion may be one word: they, and what has
    no text, are called by their kind.
    """
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    text, kind = shorten(str(error)), type(error).__name__
    if not text:
        return kind
    if isinstance(error, KeyError):
        return f"there is no {text} ({kind})"
    return f"{text} ({kind})" if isinstance(error, LookupError) or " " not in text else text


def json_object(text: str, what: str) -> dict[str, Any]:
    """Return the JSON object in a text of a file, an empty one for an empty text.

    Opening a file reads no text, so it may say anything. Raises `PefError` about `what` it is for
    what is no object.
    """
    import json  # not needed to run a program

    problem = PefError(f"this file is damaged: {what} are no JSON object")
    with reading(lambda _: problem):
        found = json.loads(text or "{}")
    if not isinstance(found, dict):
        raise problem
    return found


def producer_options(text: str) -> dict[str, Any]:
    """Return the options that the producer of a program has noted, as `json_object` does."""
    return json_object(text, "the producer's options")
