"""Leaving the group of processes that train together, in order; without loading torch."""

from __future__ import annotations

import atexit
import sys
import traceback


def leave_group_at_exit() -> None:
    """Leave the process group before the process ends.

    Threads of a group may have what they reduced last for longer than who waits for it. If Python
    is taken apart before they let go of it, they end the process with an abort.
    """
    stay_at_exit()
    atexit.register(leave_group)


def stay_at_exit() -> None:
    """Let the process end without leaving the group, which would wait for what hangs."""
    atexit.unregister(leave_group)


def leave_group() -> None:
    """Leave the process group in order, where there is one.

    A group ends its threads with its last reference; frames of the error that has ended Python may
    have one.
    """
    last = getattr(sys, "last_traceback", None)
    if last is not None:
        traceback.clear_frames(last)
    group = sys.modules.get("torch.distributed")
    if group is not None and group.is_available() and group.is_initialized():
        group.destroy_process_group()
