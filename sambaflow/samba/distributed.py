"""Processes that train together, each with a device of its own, over `torch.distributed`."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from .errors import SambaError
from .launch import HOW, launched

if TYPE_CHECKING:
    import numpy as np

    from pef.program import Program, Symbol

    from .device import Device
    from .profiler import Profiler

Mode = Literal["normal", "inorder", "optimal"]
"""How the reduction of gradients overlaps with sections."""

MODES: tuple[Mode, ...] = ("normal", "inorder", "optimal")

_MINUTES = 30
_ROOT = 0
_HOST_BACKENDS = ("gloo", "mpi", "ucc")


def join() -> None:
    """Join the processes of this job, unless the application has done so.

    Raises `SambaError` for a process that was launched alone, and if the others do not come.
    """
    if dist.is_initialized():
        return
    launch = launched()
    if launch is None:
        raise SambaError(f"data parallel training is for several processes; {HOW}")
    try:
        dist.init_process_group(
            "gloo",
            init_method=launch.address,
            rank=launch.rank,
            world_size=launch.size,
            timeout=_patience(),
        )
    except (RuntimeError, ValueError) as error:
        raise SambaError(
            f"process {launch.rank} of {launch.size} cannot meet the others at {launch.address}: "
            f"{_first_line(error)}; {HOW}"
        ) from error


def join_launched() -> None:
    """Join the processes of this job if a launcher started several; else do nothing.

    Applications ask for ranks before they trace a model: for samplers, and for what they print.
    Raises `SambaError` if the others do not come.
    """
    if launched() is not None:
        join()


def is_joined() -> bool:
    """Return whether this process is in a group."""
    return dist.is_available() and dist.is_initialized()


class GroupReducer:
    """Averages gradients over the group; for `sambarun.load`."""

    def __init__(self) -> None:
        self._group: dist.ProcessGroup | None = None

    def start(self, name: str, buffer: np.ndarray) -> _Average:
        """Begin to average gradient `name` in place; `buffer` is a view of device memory.

        Each process must start the same gradients in the same order. Raises `sambarun.RunError`
        if another process has ended.
        """
        from sambarun import RunError

        if self._group is None:
            self._group = host_group()
        tensor = _as_tensor(buffer)
        # Before the sum rather than after it: a sum of half precision may be too large.
        tensor.mul_(1 / dist.get_world_size(self._group))
        with _together(f"the reduction of '{name}'", RunError):
            work = dist.all_reduce(tensor, group=self._group, async_op=True)
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
        from sambarun import RunError

        with _together(f"the reduction of '{self._name}'", RunError):
            self._work.wait()


def host_group() -> dist.ProcessGroup:
    """Return a group of all processes that reduces in the memory of the host.

    It is the application's if its backend can; all processes have to ask for it together.
    """
    assert dist.group.WORLD is not None
    if any(name in dist.get_backend() for name in _HOST_BACKENDS):
        return dist.group.WORLD
    made = dist.new_group(backend="gloo", timeout=_patience())
    assert isinstance(made, dist.ProcessGroup)
    return made


def align(device: Device) -> None:
    """Give the device of every process the states that process 0 has.

    All processes have to call this together. Raises `SambaError` if their programs do not fit
    together, and if a process has ended.
    """
    group = host_group()
    with _together("the exchange of parameters"):
        _require_alike(device.program, group)
        states = _states(device.program)
        mine = device.executable.state()
        present = torch.tensor([symbol.name in mine for symbol in states], dtype=torch.uint8)
        dist.broadcast(present, _ROOT, group=group)
        received: dict[str, np.ndarray] = {}
        for symbol, here in zip(states, present.tolist(), strict=True):
            if here:
                received[symbol.name] = _from_root(symbol, mine.get(symbol.name), group)
    if dist.get_rank() != _ROOT:
        device.executable.write(received)


def require_reductions(program: Program) -> None:
    """Raise `SambaError` if `program` updates parameters without reducing their gradients."""
    types = {section.type.name for section in program.sections}
    if "OPT" in types and "REDUCE" not in types:
        raise SambaError(
            "the PEF was compiled for one process; compile the model with --data-parallel "
            "(config_dict={'data_parallel': True}) and run that PEF"
        )


def checked_mode(mode: str) -> Mode:
    """Return `mode`. Raises `SambaError` if it is none."""
    for known in MODES:
        if mode == known:
            return known
    raise SambaError(f"there is no data_parallel_mode '{mode}'; it is one of {', '.join(MODES)}")


class Replicas:
    """The processes that train one model: whether they have met, and are alike since."""

    def __init__(self, profiler: Profiler) -> None:
        self._profiler = profiler
        self.met = False
        """Whether they have met since the PEF was loaded."""

    def part(self) -> None:
        """Forget that they have met: another PEF comes."""
        self.met = False

    def meet(self, device: Device) -> None:
        """Join the others, and give all of them what process 0 has.

        Raises `SambaError` as `join` and `align` do, and for a PEF that reduces nothing.
        """
        require_reductions(device.program)
        join()
        with self._profiler.event("PyRT_SET_TENSORS_BROADCAST"):
            align(device)
        self.met = True

    def reduction(self, device: Device, mode: str) -> Mode:
        """Return how to reduce gradients in a run; in the first one the processes meet."""
        if not self.met:
            self.meet(device)
        return checked_mode(mode)


def _as_tensor(buffer: np.ndarray) -> Tensor:
    """Return a tensor over the memory of `buffer`; numpy has bfloat16 as a type of others."""
    if buffer.dtype.name in ("bfloat16", "uint16"):
        return torch.from_numpy(buffer.view("uint16")).view(torch.bfloat16)
    return torch.from_numpy(buffer)


def _from_root(symbol: Symbol, mine: np.ndarray | None, group: dist.ProcessGroup) -> np.ndarray:
    """Return what process 0 has of a state; types do not matter to a copy of bytes."""
    import numpy as np

    from pef import dtypes

    shape = tuple(dim for dim in symbol.shape or () if isinstance(dim, int))
    array = np.empty(shape, dtypes.numpy_dtype(symbol.dtype)) if mine is None else mine
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.size:
        dist.broadcast(torch.from_numpy(flat.view(np.uint8)), _ROOT, group=group)
    return flat.reshape(shape)


def _states(program: Program) -> list[Symbol]:
    """Return what an executable's `state` may have, in the order of the program."""
    from pef.program import SymbolKind
    from pef.states import states_of

    states = states_of(program)
    kinds = (SymbolKind.WEIGHT, SymbolKind.BUFFER, SymbolKind.OPT_STATE)
    return [
        symbol
        for index, symbol in enumerate(program.symbols)
        if symbol.kind in kinds and index in states.all and index not in states.flat
    ]


def _require_alike(program: Program, group: dist.ProcessGroup) -> None:
    """Raise `SambaError` in all processes if two of them would exchange different tensors."""
    mine = torch.frombuffer(bytearray(_signature(program)), dtype=torch.uint8)
    all_of_them = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(all_of_them, mine, group=group)
    others = [
        str(rank)
        for rank, found in enumerate(all_of_them)
        if not torch.equal(found, all_of_them[0])
    ]
    if others:
        raise SambaError(
            f"process {', '.join(others)} runs a PEF of another model than process 0; give all "
            f"processes the same PEF"
        )


def _signature(program: Program) -> bytes:
    """Return what two programs have in common that can train together, whatever their batches."""
    reduced = [
        program.symbols[index]
        for section in program.sections
        if section.type.name == "REDUCE"
        for index in section.inputs
    ]
    facts = [(s.name, s.dtype, s.shape) for s in (*_states(program), *reduced)]
    return hashlib.sha256(repr(facts).encode()).digest()


@contextmanager
def _together(what: str, kind: type[Exception] = SambaError) -> Iterator[None]:
    """Turn errors of the group into sentences, raised as `kind`."""
    try:
        yield
    except SambaError:
        raise
    except RuntimeError as error:
        raise kind(
            f"{what} failed in process {dist.get_rank()}: another process has ended, failed or "
            f"does not answer; its own output says why ({_first_line(error)})"
        ) from error


def _patience() -> timedelta:
    """Return how long to wait for others: CCL_TIMEOUT seconds, or torch's half an hour."""
    text = os.environ.get("CCL_TIMEOUT", "")
    return timedelta(seconds=int(text)) if text.isdecimal() else timedelta(minutes=_MINUTES)


def _first_line(error: Exception) -> str:
    """Return what `error` says, without the place in the source of others and their advice."""
    text = (str(error).splitlines() or [type(error).__name__])[0]
    return re.sub(r"^\[[^]]*\] ", "", text).partition(". This is")[0]
