"""Threads: one pool for a process we own, well-behaved pools per session in anybody else's.

onnxruntime's default, a spinning pool per session, is a catastrophe for programs of many sections.
A process-wide pool is the fastest cure, but it breaks every session that other code makes in the
same process and cannot be undone, so it is used only by callers who own their process. Elsewhere
each session has a pool of its own. A few, such as those of a training step, may spin while they
run, and stop when the run ends; of many, those that have just run would take the processor from
the one that works, so none spins.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import onnxruntime

from sambarun.errors import RunError

# Every session of a library has threads of its own; above this many in all, each gets fewer.
_MAX_THREADS = 512
# Up to this many sessions spin while they run: 5 to 10 % of a step of a small network.
_FEW = 4
# Words by which onnxruntime says that this process already has a pool for all sessions.
_POOL_EXISTS = "already been created"
_POOL_NEEDED = "use_per_session_threads must be false"


class Threads(NamedTuple):
    """How sessions get threads: from one pool for the process if `shared`; 0 means all cores."""

    limit: int = 0
    shared: bool = False

    def configure(self, options: onnxruntime.SessionOptions, sessions: int) -> None:
        """Set up `options` for one of about `sessions` sessions that live at the same time."""
        if self.shared:
            options.use_per_session_threads = False
            return
        options.intra_op_num_threads = self._share(sessions)
        options.inter_op_num_threads = 1
        if sessions <= _FEW:
            options.add_session_config_entry("session.force_spinning_stop", "1")
        else:
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")

    def _share(self, sessions: int) -> int:
        """Return the threads of one session among `sessions`."""
        share = max(1, _MAX_THREADS // sessions)
        return share if (self.limit or os.cpu_count() or 1) > share else self.limit


def choose(count: int | None, own_process: bool) -> Threads:
    """Return how to run with `count` threads (None: as many as the machine has cores).

    `own_process` makes the pool of the whole process, once. If there is one already it is used,
    whatever its size: onnxruntime cannot replace it.
    """
    if own_process:
        _make_pool(count or 0)
    return Threads(count or 0, own_process)


def needs_shared_pool(error: Exception) -> bool:
    """Tell whether a session was refused because other code made a pool for this process."""
    return _POOL_NEEDED in str(error)


def _make_pool(count: int) -> None:
    try:
        onnxruntime.set_global_thread_pool_sizes(count, 1)
    except Exception as error:
        # onnxruntime raises classes of its own that share no base but Exception.
        if _POOL_EXISTS not in str(error):
            raise RunError(f"onnxruntime cannot make a thread pool: {error}") from error
