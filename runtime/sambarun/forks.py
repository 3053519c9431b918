"""Forks: what a process has made, and one that was forked from it must leave alone.

A forked process has the memory of its parent and none of its threads. A session of onnxruntime
waits for those of its pool, also when it goes, and so for ever.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    """What has to be told that it finds itself in a forked process."""

    def leave_to_parent(self) -> None:
        """Be of no use in this process, and do no harm to the one it comes from."""


_kept: weakref.WeakSet[object] = weakref.WeakSet()
_told: weakref.WeakSet[Forkable] = weakref.WeakSet()


def keep_in_child(thing: object) -> None:
    """Have `thing` live on to the very end of a forked process, whoever forgets it there."""
    _kept.add(thing)


def tell_child(thing: Forkable) -> None:
    """Have `thing` told when it finds itself in a forked process."""
    _told.add(thing)


def _in_child() -> None:
    for thing in (*_kept,):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    for told in (*_told,):
        told.leave_to_parent()
    _kept.clear()
    _told.clear()


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(after_in_child=_in_child)
