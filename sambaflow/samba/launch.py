"""How this process was launched: its number among those of one job, and where they meet."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

from .errors import SambaError

HOW = (
    "launch several processes: torchrun --nproc-per-node 2 app.py run --data-parallel --pef ..., "
    "or mpirun -np 2 python app.py ..., or srun"
)


@dataclass(frozen=True)
class Launch:
    """This process is number `rank` of `size`; `local_size` of them are on this host.

    `address` is what `torch.distributed` calls the method of initialisation.
    """

    rank: int
    size: int
    local_size: int
    address: str


class _Launcher(NamedTuple):
    """The environment variables of a launcher; `jobs` tell jobs on one host apart."""

    rank: str
    size: str
    local_sizes: tuple[str, ...]
    jobs: tuple[str, ...] = ()


_LAUNCHERS = (
    _Launcher("RANK", "WORLD_SIZE", ("LOCAL_WORLD_SIZE",)),
    _Launcher(
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    _Launcher("PMI_RANK", "PMI_SIZE", ("MPI_LOCALNRANKS",), ("PMI_JOBID",)),
    _Launcher(
        "SLURM_PROCID",
        "SLURM_NTASKS",
        ("SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE"),
        ("SLURM_JOB_ID",),
    ),
)
_PORT = 29500
_PORTS = 10_000


class _Place(NamedTuple):
    """The numbers that a launcher gives a process."""

    launcher: _Launcher
    rank: int
    size: int
    local_size: int


def launched(environment: Mapping[str, str] = os.environ) -> Launch | None:
    """Return how this process was launched, None if it is alone.

    Raises `SambaError` for processes on several hosts of which nobody said where they meet.
    """
    place = _place(environment)
    if place is None:
        return None
    several = place.local_size < place.size
    address = _address(environment, place.launcher, several=several)
    return Launch(place.rank, place.size, place.local_size, address)


def threads_of_share(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return how many threads an operator gets, None for what the runtime takes by itself.

    SN_NUM_THREADS says it. Without it the processes of one host share its processors.
    """
    wanted = _number(environment, "SN_NUM_THREADS")
    if wanted:
        return wanted
    place = _place(environment)
    if place is None or place.local_size == 1:
        return None
    share = max(1, (os.cpu_count() or 1) // place.local_size)
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else share
    return min(share, allowed)


def _place(environment: Mapping[str, str]) -> _Place | None:
    for launcher in _LAUNCHERS:
        rank = _number(environment, launcher.rank)
        size = _number(environment, launcher.size)
        if rank is not None and size:
            locals_ = (_number(environment, name) for name in launcher.local_sizes)
            return _Place(launcher, rank, size, next((n for n in locals_ if n), size))
    return None


def _address(environment: Mapping[str, str], launcher: _Launcher, *, several: bool) -> str:
    """Return where the processes meet: as the environment says, else on this host."""
    host = environment.get("MASTER_ADDR", "")
    if several and not host:
        raise SambaError(
            "the processes are on several hosts, and nobody says where they meet; set MASTER_ADDR "
            "to the name of the host of process 0, and MASTER_PORT to a free port there"
        )
    if launcher is _LAUNCHERS[0] and host and "MASTER_PORT" in environment:
        return "env://"
    port = _number(environment, "MASTER_PORT") or _port(environment, launcher)
    return f"tcp://{host or 'localhost'}:{port}"


def _port(environment: Mapping[str, str], launcher: _Launcher) -> int:
    """Return a port that is the same in all processes of a job, and rarely that of another job."""
    job = next((environment[name] for name in launcher.jobs if environment.get(name)), "")
    return _PORT + (crc32(job.encode()) % _PORTS if job else 0)


def _number(environment: Mapping[str, str], name: str) -> int | None:
    """Return the number that `name` begins with, as in `2(x3)`; None without one."""
    text = environment.get(name, "").partition("(")[0]
    return int(text) if text.isdecimal() else None
