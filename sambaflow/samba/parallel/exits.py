"""How processes come together that train together, and how one ends that others may wait for.

Processes that train together wait for each other in collectives. One that fails and then lingers,
because a thread of its own still waits, keeps all of them waiting. `use_abexit` ends it at once:
its connections close, and the others get an error instead of waiting.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from typing import Never, ParamSpec, TypeAlias

from sambaflow.samba.errors import in_samba_words
from sambahost import rendezvous
from sambahost.leaving import leave_group

P = ParamSpec("P")
Handler: TypeAlias = Callable[[], object]

_INTERRUPTED = 130
_FAILED = 1


class _Handlers:
    """What is to be done before the process ends, the last first; each is done once."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        atexit.register(self.run)

    def add(self, handler: Handler) -> None:
        self._stack.callback(handler)

    def run(self) -> None:
        """Run all; what one raises is raised when all have run."""
        self._stack.pop_all().close()


_HANDLERS = _Handlers()


def atexit_register(func: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Have `func` called before the process ends, also where `use_abexit` ends it."""
    _HANDLERS.add(lambda: func(*args, **kwargs))


def use_abexit(func: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Never:
    """Call `func`, then end the process without waiting for threads or other processes.

    The exit code is that of the `SystemExit` that `func` raised, 130 for an interrupt, 1 after
    another exception, whose traceback is printed, and else 0. Handlers of `atexit_register` run
    before, those of `atexit.register` do not.
    """
    code = _outcome(lambda: func(*args, **kwargs))
    after = _outcome(_HANDLERS.run)
    # A group is left by all or by none: who fails must not wait for the others.
    code = code or after or _outcome(leave_group)
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if code:
        _abort_others(code)
    os._exit(code)


def _outcome(work: Handler) -> int:
    """Return the exit code that stands for how `work` ended; tracebacks are printed."""
    try:
        work()
    except SystemExit as end:
        return _code(end)
    except KeyboardInterrupt:
        traceback.print_exc()
        return _INTERRUPTED
    except BaseException:  # whatever it was, the process has to end
        traceback.print_exc()
        return _FAILED
    return 0


def _code(end: SystemExit) -> int:
    """Return the code as Python does: a text is printed and means failure."""
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code & 0xFF
    print(end.code, file=sys.stderr)
    return _FAILED


def _abort_others(code: int) -> None:
    """Have MPI end the other processes, if this one uses it; others notice closed connections."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.COMM_WORLD.Abort(code)


def join_launched() -> None:
    """Join the processes of this job if a launcher started several; else do nothing.

    Raises `SambaError` if the others do not come.
    """
    with in_samba_words():
        rendezvous.join_launched()
