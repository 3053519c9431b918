"""Leaving the group of processes that train together, in order; without loading torch."""

from __future__ import annotations

import atexit
import ctypes
import sys
import traceback
from types import ModuleType


def leave_group_at_exit() -> None:
    """Leave the process group before the process ends.

    Threads of a group may have what they reduced last for longer than who waits for it. If Python
    is taken apart before they let go of it, they end the process with an abort.
    """
    atexit.unregister(leave_group)
    atexit.register(leave_group)


def stay_at_exit() -> None:
    """Let the process end without leaving the groups, which would wait for what hangs.

    A group joins its threads when its last reference goes, and those of a gloo group may sleep
    until its timeout, half an hour: a receive that begins while its peer's connection closes is
    not always woken. So one reference to each never goes, not even when Python is taken apart.
    """
    atexit.unregister(leave_group)
    group = _initialized()
    for kept in group.distributed_c10d._world.pg_map if group else ():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))


def leave_group() -> None:
    """Leave the process group in order, where there is one.

    A group ends its threads with its last reference. Frames of the error that has ended Python may
    have one, and those of the errors that this one was raised from.
    """
    last, seen = [getattr(sys, "last_value", None)], set[int]()
    while last:
        error = last.pop()
        if isinstance(error, BaseException) and id(error) not in seen:
            seen.add(id(error))
            traceback.clear_frames(error.__traceback__)
            last += [error.__cause__, error.__context__]
    group = _initialized()
    if group is not None:
        group.destroy_process_group()


def _initialized() -> ModuleType | None:
    """Return `torch.distributed` if this process is in a group."""
    group = sys.modules.get("torch.distributed")
    if group is not None and group.is_available() and group.is_initialized():
        return group
    return None
