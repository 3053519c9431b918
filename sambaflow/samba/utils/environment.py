"""The process: its seed, its place among others, its processors."""

from __future__ import annotations

import os
import random

import numpy as np
import torch

from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.arguments.kinds import COUNT, PATH, ArgumentKind, whole

__all__ = [
    "fix_rdu_affinity",
    "get_file_dir",
    "get_rank",
    "get_world_size",
    "is_main_process",
    "set_seed",
]

_LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_LOCAL_SIZES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")


_SEED = ArgumentKind(
    "a whole number from -2**63 to 2**64 - 1",
    lambda value: COUNT.fits(value) and -(2**63) <= whole(value) < 2**64,
)
"""What PyTorch takes for a seed."""


@checked(seed=_SEED)
def set_seed(seed: int) -> None:
    """Seed the random numbers of Python, NumPy and torch; what the host draws then repeats."""
    seed = int(seed)  # one of NumPy's, too, which Python's generator refuses
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  # applications draw from NumPy's global generator
    torch.manual_seed(seed)


@checked(file=PATH)
def get_file_dir(file: str) -> str:
    """Return the folder that `file` is in, absolute: `get_file_dir(__file__)` is the app's."""
    return os.path.dirname(os.path.abspath(file))


def get_rank() -> int:
    """Return the number of this process among those that train together; 0 if it is alone."""
    return torch.distributed.get_rank() if _together() else 0


def get_world_size() -> int:
    """Return how many processes train together; 1 if this one is alone."""
    return torch.distributed.get_world_size() if _together() else 1


def is_main_process() -> bool:
    """Return whether this is the process that prints and saves: number 0."""
    return get_rank() == 0


def fix_rdu_affinity() -> None:
    """Bind this process to a share of the host's processors, one share for each local process.

    Hardware binds a process to a device; here every process has its modelled device, and what they
    would compete for is processors. The launcher's variables say which share is ours. Nothing
    happens for a process alone, for more processes than processors, or where the system cannot
    bind.
    """
    rank, size = _number(_LOCAL_RANKS), _number(_LOCAL_SIZES)
    if rank is None or size is None or not hasattr(os, "sched_setaffinity"):
        return
    processors = sorted(os.sched_getaffinity(0))
    share = processors[rank * len(processors) // size : (rank + 1) * len(processors) // size]
    if size > 1 and share:
        os.sched_setaffinity(0, share)


def _together() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _number(variables: tuple[str, ...]) -> int | None:
    """Return the first of the environment's `variables` that is set to a number."""
    texts = (os.environ.get(variable, "") for variable in variables)
    return next((int(text) for text in texts if text.isdecimal()), None)
