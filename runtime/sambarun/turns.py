"""Whose turn it is: one caller at a time, and never one that is gone.

A lock is released by code, and an interrupt may come before any piece of code. A turn is given back
in the same way, but does not depend on that: it belongs to the frame of the function that took it,
and is free as soon as that function has been left, in whatever way.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Self

_PAUSE = 0.001


class Turn:
    """A turn; nobody waits for it.

    The function that calls `take` has it until `give_back`, or until it is left.
    """

    __slots__ = ("_holders",)

    def __init__(self) -> None:
        # The holder under None; under a holder that left without a word, the one who found out.
        # `setdefault` lets only one of several in.
        self._holders: dict[FrameType | None, FrameType] = {}

    def take(self, frame: FrameType) -> bool:
        """Take the turn for the function that runs in `frame`; return False if another has it."""
        while True:
            holders, before = self._holders, None
            while (holder := holders.setdefault(before, frame)) is not frame:
                if _runs(holder):
                    return False
                before = holder
            if holders is self._holders:
                break  # else somebody had the turn meanwhile, and began a new table
        if before is not None:
            self._holders = {None: frame}
        return True

    def is_up(self, frame: FrameType) -> bool:
        """Tell whether a function that has the turn is among those that called the one in `frame`.

        That one would wait for itself.
        """
        holders = {id(holder) for holder in self._holders.copy().values()}
        up: FrameType | None = frame
        while up is not None and id(up) not in holders:
            up = up.f_back
        return up is not None

    def give_back(self) -> None:
        """End the turn of the one who has it."""
        self._holders.pop(None, None)


class NoTurn(Turn):
    """A turn that nobody gets."""

    __slots__ = ()

    def take(self, frame: FrameType) -> bool:
        """Return False."""
        return False


class Mutex:
    """A turn for which one waits, a context manager; the function around the `with` has it.

    Whoever is called from within raises what `inside` makes if that is given, else waits for ever.
    """

    __slots__ = ("_inside", "_turn")

    def __init__(self, inside: Callable[[], Exception] | None = None) -> None:
        self._turn = Turn()
        self._inside = inside

    def __enter__(self) -> Self:
        frame = sys._getframe(1)
        while not self._turn.take(frame):
            if self._inside is not None and self._turn.is_up(frame):
                raise self._inside()
            time.sleep(_PAUSE)
        return self

    def __exit__(self, *error: object) -> None:
        self._turn.give_back()


def _runs(frame: FrameType) -> bool:
    """Tell whether a function is still running; of one that is not, the variables are forgotten."""
    try:
        frame.clear()
    except RuntimeError:  # what Python says of a frame that is being executed
        return True
    return False
