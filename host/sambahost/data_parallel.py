"""Processes that train together, each with a device of its own, over `torch.distributed`."""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from pef import dtypes
from pef.symbols import Symbol
from sambarun import Executable, RunError

from .program_match import exchanged, require_programs_match
from .rendezvous import patience, together, wait

_ROOT = 0
_HOST_BACKENDS = ("gloo", "mpi", "ucc")


class GroupReducer:
    """Averages gradients over the group; for `sambarun.load`.

    It has no reference to a group of the application's, or of the job's, which ends with its last.
    """

    def __init__(self) -> None:
        self._own: dist.ProcessGroup | None = None

    def start(self, name: str, buffer: np.ndarray) -> _Average:
        """Begin to average gradient `name` in place; `buffer` is a view of device memory.

        Each process must start the same gradients in the same order. Raises `sambarun.RunError`
        if another process has ended.
        """
        if self._own is None and not _reduces_in_host_memory():
            self._own = host_group()
        tensor = _as_tensor(buffer)
        # Before the sum rather than after it: a sum of half precision may be too large.
        tensor.mul_(1 / dist.get_world_size(self._own))
        with together(f"the reduction of '{name}'", RunError):
            work = dist.all_reduce(tensor, group=self._own, async_op=True)
        assert work is not None
        return _Average(name, work)


class _Average:
    """A gradient that is being averaged."""

    __slots__ = ("_name", "_work")

    def __init__(self, name: str, work: dist.Work) -> None:
        self._name = name
        self._work = work

    def done(self) -> bool:
        """Return whether `wait` returns at once."""
        return self._work.is_completed()

    def wait(self) -> None:
        """Return when the average is there.

        Raises `sambarun.RunError` if another process has ended.
        """
        with together(f"the reduction of '{self._name}'", RunError):
            wait(self._work)


def host_group() -> dist.ProcessGroup:
    """Return a group of all processes that reduces in the memory of the host.

    It is the application's if its backend can; all processes have to ask for it together.
    """
    assert dist.group.WORLD is not None
    if _reduces_in_host_memory():
        return dist.group.WORLD
    made = dist.new_group(backend="gloo", timeout=patience())
    assert isinstance(made, dist.ProcessGroup)
    return made


def _reduces_in_host_memory() -> bool:
    """Return whether the group of all processes can reduce in the memory of the host."""
    return any(name in dist.get_backend() for name in _HOST_BACKENDS)


def align(executable: Executable) -> None:
    """Give the executable of every process the states that process 0 has.

    All processes have to call this together. Raises `HostError` if their programs do not fit
    together, and if a process has ended.
    """
    group, program = host_group(), executable.program
    with together("the exchange of parameters"):
        require_programs_match(program, group)
        states = exchanged(program)
        mine = executable.state()
        present = torch.tensor([symbol.name in mine for symbol in states], dtype=torch.uint8)
        dist.broadcast(present, _ROOT, group=group)
        received: dict[str, np.ndarray] = {}
        for symbol, here in zip(states, present.tolist(), strict=True):
            if here:
                received[symbol.name] = _from_root(symbol, mine.get(symbol.name), group)
    if dist.get_rank() != _ROOT:
        executable.write(received)


def _as_tensor(buffer: np.ndarray) -> Tensor:
    """Return a tensor over the memory of `buffer`; numpy has bfloat16 as a type of others."""
    if buffer.dtype.name in ("bfloat16", "uint16"):
        return torch.from_numpy(buffer.view("uint16")).view(torch.bfloat16)
    return torch.from_numpy(buffer)


def _from_root(symbol: Symbol, mine: np.ndarray | None, group: dist.ProcessGroup) -> np.ndarray:
    """Return what process 0 has of a state; types do not matter to a copy of bytes."""
    shape = tuple(dim for dim in symbol.shape or () if isinstance(dim, int))
    array = np.empty(shape, dtypes.numpy_dtype(symbol.dtype)) if mine is None else mine
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.size:
        dist.broadcast(torch.from_numpy(flat.view(np.uint8)), _ROOT, group=group)
    return flat.reshape(shape)
