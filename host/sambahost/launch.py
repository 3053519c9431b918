"""How this process was launched: its number among those of one job, and where they meet."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

from pef.arguments import MOST_THREADS
from sambahost.errors import HostError


@dataclass(frozen=True)
class Launch:
    """This process is number `rank` of `size`; `local_size` of them are on this host.

    They meet at a port of a host, where process 0 listens, or the launcher itself if `hosted`.
    `attempt` counts how often the launcher has started all of them again.
    """

    rank: int
    size: int
    local_size: int
    host: str
    port: int
    hosted: bool = False
    attempt: int = 0


class _Launcher(NamedTuple):
    """The environment variables of a launcher; `jobs` tell jobs on one host apart."""

    rank: str
    size: str
    local_sizes: tuple[str, ...]
    jobs: tuple[str, ...] = ()


# A batch script of Slurm has the variables of its job, as if it were process 0; those of a step
# are set by srun alone.
_OF_A_STEP = "SLURM_STEP_TASKS_PER_NODE"
_LAUNCHERS = (
    _Launcher("RANK", "WORLD_SIZE", ("LOCAL_WORLD_SIZE",)),
    _Launcher(
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    _Launcher(
        "PMI_RANK",
        "PMI_SIZE",
        ("MPI_LOCALNRANKS", _OF_A_STEP),
        ("PMI_JOBID", "SLURM_JOB_ID"),
    ),
    _Launcher("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", (_OF_A_STEP,), ("SLURM_JOB_ID",)),
)
_SHOWN = 40  # characters of a variable
_PORT = 29500
_PORTS = 10_000
_LAST_PORT = 65_535
_AGENT = "TORCHELASTIC_USE_AGENT_STORE"
_RESTARTS = "TORCHELASTIC_RESTART_COUNT"


class _ProcessPlace(NamedTuple):
    """The numbers that a launcher gives a process."""

    launcher: _Launcher
    rank: int
    size: int
    local_size: int


def launched(environment: Mapping[str, str] = os.environ) -> Launch | None:
    """Return how this process was launched, None if it is alone.

    Raises `HostError` for processes on several hosts of which nobody said where they meet, and for
    a MASTER_PORT that is no port.
    """
    place = _place(environment)
    if place is None:
        return None
    several = place.local_size < place.size
    host = environment.get("MASTER_ADDR", "")
    if several and not host:
        raise HostError(
            "the processes are on several hosts, and nobody says where they meet; set MASTER_ADDR "
            "to the name of the host of process 0, and MASTER_PORT to a free port there"
        )
    return Launch(
        place.rank,
        place.size,
        place.local_size,
        host or "localhost",
        whole_number("MASTER_PORT", _LAST_PORT, environment) or _port(environment, place.launcher),
        hosted=place.launcher is _LAUNCHERS[0] and environment.get(_AGENT) == "True",
        # Launchers on several hosts count for themselves.
        attempt=0 if several else _number(environment, _RESTARTS) or 0,
    )


def launched_together(environment: Mapping[str, str] = os.environ) -> int:
    """Return how many processes a launcher started together with this one, 1 if it is alone."""
    place = _place(environment)
    return 1 if place is None else place.size


def threads_of_share(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return how many threads an operator gets, None for what the runtime takes by itself.

    SN_NUM_THREADS says it. Without it the processes of one host share its processors. Raises
    `HostError` where it says something else than a number.
    """
    wanted = whole_number("SN_NUM_THREADS", MOST_THREADS, environment)
    if wanted:
        return wanted
    place = _place(environment)
    if place is None or place.local_size == 1:
        return None
    share = max(1, (os.cpu_count() or 1) // place.local_size)
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else share
    return min(share, allowed, MOST_THREADS)


def whole_number(name: str, most: int, environment: Mapping[str, str] = os.environ) -> int | None:
    """Return the whole number that a variable is set to by a user, None where it is not set.

    Raises `HostError` for other text, and for numbers above `most`.
    """
    text = environment.get(name, "")
    if not text:
        return None
    if not re.fullmatch(r"[0-9]+", text) or len(text) > len(str(most)) or int(text) > most:
        raise HostError(
            f"{name} is {text[:_SHOWN]!r}; a whole number from 0 to {most} was expected"
        )
    return int(text)


def _place(environment: Mapping[str, str]) -> _ProcessPlace | None:
    for launcher in _LAUNCHERS:
        rank = _number(environment, launcher.rank)
        size = _number(environment, launcher.size)
        if rank is not None and size:
            locals_ = (_number(environment, name) for name in launcher.local_sizes)
            return _ProcessPlace(launcher, rank, size, next((n for n in locals_ if n), size))
    return None


def _port(environment: Mapping[str, str], launcher: _Launcher) -> int:
    """Return a port that is the same in all processes of a job, and rarely that of another job."""
    job = next((environment[name] for name in launcher.jobs if environment.get(name)), "")
    return _PORT + (crc32(job.encode()) % _PORTS if job else 0)


def _number(environment: Mapping[str, str], name: str) -> int | None:
    """Return the number that `name` begins with, as in `2(x3)` and `2,1`; None without one."""
    found = re.match(r"[0-9]+", environment.get(name, ""))
    return int(found[0]) if found else None
