"""Interrupts at a chosen operation of Python, and at moments that a timer chooses."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_INSIDE = ("sambarun", "pef")


class Countdown:
    """Raises KeyboardInterrupt before operation number `left` inside of the packages."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        """Trace the functions of the packages, operation by operation."""
        del event, argument
        if not _is_inside(frame):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._operation

    def _operation(self, frame: FrameType, event: str, argument: object) -> Any:
        del frame, argument
        if event == "opcode":
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
        return self._operation


def _is_inside(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__", "").partition(".")[0] in _INSIDE


def came(number: int, act: Callable[[], object]) -> bool:
    """Do `act`, interrupted before operation `number`; return whether it has so many."""
    before = sys.gettrace()
    sys.settrace(Countdown(number))
    try:
        next(_apart(act))
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def _apart(act: Callable[[], object]) -> Iterator[object]:
    """Do `act` in a generator, which has errors that are being handled of its own.

    Python forgets to end the handling of one where it is interrupted at the operation that would,
    which only a tracer can do. All later errors of the thread would seem to have come of that one.
    """
    yield act()


def operations(act: Callable[[], object]) -> int:
    """Do `act` and return how many operations it has."""
    countdown, before = Countdown(sys.maxsize), sys.gettrace()
    sys.settrace(countdown)
    try:
        act()
    finally:
        sys.settrace(before)
    return sys.maxsize - countdown.left


def each_operation(act: Callable[[], object], at_most: int = 2000) -> Iterator[int]:
    """Do `act` again and again, each time interrupted some operations later.

    Yields after each interrupt, after about `at_most`, which are spread over all operations.
    """
    count = operations(act)
    for number in range(0, count, count // at_most + 1):
        came(number, act)
        yield number


@contextmanager
def alarms(seconds: float) -> Iterator[None]:
    """Interrupt what the packages do in the block every few `seconds`, as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        if frame is not None and _is_inside(frame):
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
