"""Leaving the group of processes that train together, in order; without loading torch."""

from __future__ import annotations

import atexit
import sys
import traceback


def leave_group_at_exit() -> None:
    """Leave the process group before the process ends, however it does.

    For when all have failed alike and nobody waits: threads of a group that is still there when
    Python is taken apart may end the process with an abort, and its exit code with it.
    """
    atexit.unregister(leave_group)
    atexit.register(leave_group)


def leave_group() -> None:
    """Leave the process group in order, where there is one.

    A group ends with its last reference; frames of the error that has ended Python may have one.
    """
    last = getattr(sys, "last_traceback", None)
    if last is not None:
        traceback.clear_frames(last)
    group = sys.modules.get("torch.distributed")
    if group is not None and group.is_available() and group.is_initialized():
        group.destroy_process_group()
