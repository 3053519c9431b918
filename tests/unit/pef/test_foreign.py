"""The guard around foreign parsers."""

from __future__ import annotations

import signal

import pytest

from pef.foreign import reading, why


class RefusedError(Exception):
    """What the caller raises."""


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyError("x"), "there is no 'x' (KeyError)"),
        (KeyError(6), "there is no 6 (KeyError)"),
        (IndexError("list index out of range"), "list index out of range (IndexError)"),
        (AssertionError(), "AssertionError"),
        (AssertionError(3), "3 (AssertionError)"),
        (StopIteration(), "StopIteration"),
        (AssertionError("sizes differ"), "sizes differ"),
        (RecursionError("maximum recursion depth exceeded"), "it is nested too deeply"),
        (ZeroDivisionError(), "ZeroDivisionError"),
        (ValueError("a\n  b"), "a b"),
        (ValueError("xy " * 1000), "xy " * 100 + "..."),
    ],
)
def test_whatever_a_parser_raises(error: Exception, words: str) -> None:
    with pytest.raises(RefusedError) as caught, reading(lambda found: RefusedError(why(found))):
        raise error
    assert str(caught.value) == words
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [OSError("x"), MemoryError(), KeyboardInterrupt()])
def test_what_says_nothing_of_the_content(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, reading(lambda _: RefusedError()):
        raise error
    assert caught.value is error


def _refuse(error: Exception) -> RefusedError:
    return RefusedError(str(error))


def test_what_a_handler_of_signals_raises_is_not_the_files_fault() -> None:
    def stop(number: int, frame: object) -> None:
        raise LookupError("time is up")

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        with pytest.raises(LookupError, match="time is up"), reading(_refuse):
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    with pytest.raises(RefusedError, match="time is up"), reading(_refuse):
        stop(0, None)
