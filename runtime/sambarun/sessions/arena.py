"""Memory that onnxruntime takes for values inside of sessions: shared, and given back.

By default every session has an arena of its own, which keeps what its largest run needed. Sessions
of one program never need theirs at the same time, so they share one: the program then holds the
most that one of them needs, not the sum. Sessions opt in one by one; those that other code makes
in the same process are not concerned.
"""

from __future__ import annotations

import ctypes

import onnxruntime
from onnxruntime.capi import _pybind_state as ort

from .provider import Provider


def begin_arena(provider: Provider) -> None:
    """Let the sessions of `provider` that `join_arena` from now on share a new arena.

    It takes the place of the one before, which lives on as long as a session uses it. Nothing but
    memory depends on which sessions share: an arena may be used by many threads.
    """
    ort.create_and_register_allocator(provider.arena, None)


def join_arena(options: onnxruntime.SessionOptions) -> None:
    """Have the session that is made with `options` use the present arena."""
    options.add_session_config_entry("session.use_env_allocators", "1")


def trim_heap() -> None:
    """Give back what the C library keeps of freed memory, where it can be told to.

    Making sessions and running them for the first time frees many pieces that are too small to go
    back by themselves, in all as much as a small program needs.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, others do not
    if trim is not None:
        trim(0)
