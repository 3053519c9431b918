"""Where processes that train together meet, and which of them is missing when something fails.

Each leaves notes in the store of the group: that it has come, and what it was about when a
collective failed. Who leaves no such note has ended, or does not answer.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore

from .errors import HostError, LaunchedAloneError
from .launch import Launch, launched, whole_number
from .leaving import leave_group_at_exit, stay_at_exit

_LOG = logging.getLogger(__name__)
_LONGEST = 10**9  # seconds
_MINUTES = 30
_PAUSE = 0.1
"""Seconds between two looks at what others have left in the store."""
_QUIET = 60.0
"""Seconds after which it is told for whom a process waits."""
_LOOK = timedelta(seconds=1)
"""How often a process that waits for others looks whether one of them has given up."""
_ROLL_CALL = 15.0
"""Seconds in which those that live leave their notes; nobody learns of an end at once."""
_HERE = "host/here"
_FAILED = "host/failed"
_WHY = "; what it printed says why"


def join() -> None:
    """Join the processes of this job, unless the application has done so.

    Raises `HostError` for a process that was launched alone, and if others do not come.
    """
    if not dist.is_initialized():
        launch = launched()
        if launch is None:
            raise LaunchedAloneError("data parallel training is for several processes")
        _make_group(launch)
    store = _store_of_group()
    if store is not None:
        store.set(f"{_HERE}/{dist.get_rank()}", _place())


def join_launched() -> None:
    """Join the processes of this job if a launcher started several; else do nothing.

    Applications ask for ranks before they trace a model: for samplers, and for what they print.
    Raises `HostError` if the others do not come.
    """
    if launched() is not None:
        join()


def patience() -> timedelta:
    """Return how long to wait for others: CCL_TIMEOUT seconds, or torch's half an hour.

    Raises `HostError` where that is set to something else than a number of seconds.
    """
    seconds = whole_number("CCL_TIMEOUT", _LONGEST)
    return timedelta(minutes=_MINUTES) if seconds is None else timedelta(seconds=seconds)


@contextmanager
def together(what: str, kind: type[Exception] = HostError) -> Iterator[None]:
    """Turn errors of the group in `what` into sentences that say who is missing, raised as `kind`.

    `HostError` passes as it is.
    """
    try:
        yield
    except HostError:
        raise
    except KeyboardInterrupt:
        stay_at_exit()
        raise
    except RuntimeError as error:
        stay_at_exit()
        rank, reason = dist.get_rank(), _first_line(error)
        raise kind(f"{what} failed in process {rank}: {_culprits(what)} ({reason})") from error


def wait(work: dist.Work) -> None:
    """Return when a collective is done.

    Raises `RuntimeError` if it fails, or another process has given up. Only the neighbours of a
    process that ends are told by their connections; the others would learn of it when these end.
    """
    while True:
        try:
            work.wait(_LOOK)
        except RuntimeError:
            if work.is_completed():
                raise
            _require_none_gave_up()
        else:
            return


def _require_none_gave_up() -> None:
    """Raise `RuntimeError` that says which processes have left a note of a failure."""
    store = _store_of_group()
    if store is None:
        return
    gone = [rank for rank in range(dist.get_world_size()) if store.check([f"{_FAILED}/{rank}"])]
    if gone:
        raise RuntimeError(f"{numbered(gone)} {_have(gone)} given up")


def numbered(ranks: Iterable[int]) -> str:
    """Return `process 1` or `processes 1, 2`."""
    numbers = [str(rank) for rank in ranks]
    return f"process{'es' if len(numbers) > 1 else ''} {', '.join(numbers)}"


def _make_group(launch: Launch) -> None:
    store = _store(launch)
    _wait_for_all(store, launch)
    try:
        dist.init_process_group(
            "gloo", store=store, rank=launch.rank, world_size=launch.size, timeout=patience()
        )
        leave_group_at_exit()
        dist.barrier()  # nobody ends while another still connects, who would not know why
    except (RuntimeError, ValueError) as error:
        raise HostError(
            f"process {launch.rank} cannot connect to the others: {_first_line(error)}"
        ) from error


def _store(launch: Launch) -> Store:
    """Return the store that all processes share: process 0 has it, or the launcher.

    Raises `HostError` if it cannot be had.
    """
    listens, patient = launch.rank == 0 and not launch.hosted, patience()
    place = f"{launch.host}:{launch.port}"
    try:
        store = TCPStore(
            launch.host,
            launch.port,
            launch.size,
            listens,
            timeout=patient,
            wait_for_workers=False,
            multi_tenant=True,
        )
    except (RuntimeError, ValueError) as error:
        problem = (
            f"cannot listen at {place}, where the others are to meet it; set MASTER_ADDR and "
            f"MASTER_PORT to this host and a free port of it"
            if listens
            else f"finds {'its launcher' if launch.hosted else 'process 0'} not at {place} within "
            f"{patient.total_seconds():.0f} seconds (CCL_TIMEOUT); it has ended, or hangs"
        )
        raise HostError(f"process {launch.rank} {problem} ({_first_line(error)})") from error
    return PrefixStore(f"attempt {launch.attempt}", store)


def _wait_for_all(store: Store, launch: Launch) -> None:
    """Return when all processes are here. Raises `HostError` that says who does not come."""
    keys = {rank: f"{_HERE}/{rank}" for rank in range(launch.size)}
    store.set(keys[launch.rank], _place())
    began, told = time.monotonic(), False
    # Looked up again and again: a wait of the store is deaf to Ctrl-C, and prints a warning.
    while missing := _missing(store, keys, launch):
        waited = time.monotonic() - began
        if waited >= patience().total_seconds():
            raise HostError(
                f"process {launch.rank} of {launch.size} has waited {waited:.0f} seconds "
                f"(CCL_TIMEOUT) for {numbered(missing)}, which did not come{_WHY}"
            )
        if waited > _QUIET and not told:
            _LOG.warning("process %s waits for %s", launch.rank, numbered(missing))
            told = True
        time.sleep(_PAUSE)


def _missing(store: Store, keys: dict[int, str], launch: Launch) -> list[int]:
    """Return who has not come; without a store that is the one which has it."""
    try:
        return [rank for rank, key in keys.items() if not store.check([key])]
    except RuntimeError as error:
        raise HostError(
            f"process {launch.rank} of {launch.size} has lost "
            f"{'its launcher' if launch.hosted else 'process 0'} before all had come: it has "
            f"ended{_WHY} ({_first_line(error)})"
        ) from error


def _culprits(what: str) -> str:
    """Return who is why `what` failed, and leave a note that this process is not."""
    store = _store_of_group()
    if store is None:
        return f"another process has ended, failed or does not answer{_WHY}"
    try:
        store.set(f"{_FAILED}/{dist.get_rank()}", what)
        return _roll_call(store, what)
    except RuntimeError:  # the store went with the process that had it
        return f"process 0 has ended{_WHY}"


def _roll_call(store: Store, what: str) -> str:
    """Return which processes have left no note, or what else they are about."""
    others = [rank for rank in range(dist.get_world_size()) if rank != dist.get_rank()]
    notes = {rank: _note(store, _FAILED, rank) for rank in others}
    deadline = time.monotonic() + _ROLL_CALL
    while True:
        notes |= {rank: _note(store, _FAILED, rank) for rank in others if notes[rank] is None}
        silent = [rank for rank in others if notes[rank] is None]
        ended = [rank for rank in silent if _has_ended(_note(store, _HERE, rank))]
        # Who has seen enough waits for the others too: the store may end with this process.
        if ended == silent or time.monotonic() > deadline:
            break
        time.sleep(_PAUSE)
    if ended:
        return f"{numbered(ended)} {_have(ended)} ended{_WHY}"
    if silent:
        return f"{numbered(silent)} {_have(silent)} ended or {_do(silent)} not answer{_WHY}"
    elsewhere = [f"{numbered([r])} in {n}" for r, n in notes.items() if n != what]
    if elsewhere:
        return f"the others did something else, {', '.join(elsewhere)}"
    return "the connection to another process is lost"


def _have(ranks: list[int]) -> str:
    return "has" if len(ranks) == 1 else "have"


def _do(ranks: list[int]) -> str:
    return "does" if len(ranks) == 1 else "do"


def _note(store: Store, kind: str, rank: int) -> str | None:
    key = f"{kind}/{rank}"
    return store.get(key).decode() if store.check([key]) else None


def _store_of_group() -> Store | None:
    """Return the store of the group that all processes are in; MPI's has none."""
    find: Callable[[], Store | None] = dist.distributed_c10d._get_default_store
    return find()


def _place() -> str:
    """Return the host of this process, which includes its container, and its number there."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return f"{socket.gethostname()}{space} {os.getpid()}"


def _has_ended(place: str | None) -> bool:
    """Return whether the process at `place` is known to be over: one of this host that is not."""
    host, _, number = (place or "").rpartition(" ")
    if host != _place().rpartition(" ")[0]:
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return _is_zombie(number)


def _is_zombie(number: str) -> bool:
    """Return whether a process is over, and its parent has not asked how it ended."""
    try:
        with open(f"/proc/{number}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return False


def _first_line(error: Exception) -> str:
    """Return what `error` says, without the place in the source of others and their advice."""
    text = (str(error).splitlines() or [type(error).__name__])[0]
    return re.sub(r"^\[[^]]*\] ", "", text).partition(". This is")[0]
