"""Processes that train together, each with a device of its own, over `torch.distributed`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from .alike import exchanged, require_alike
from .errors import SambaError
from .exits import leave_group_at_exit
from .launch import launched_together
from .meeting import join, patience, together

if TYPE_CHECKING:
    import numpy as np

    from pef.program import Program, Symbol
    from sambarun import Selection

    from .device import Device
    from .profiler import Profiler

Mode = Literal["normal", "inorder", "optimal"]
"""How the reduction of gradients overlaps with sections."""

MODES: tuple[Mode, ...] = ("normal", "inorder", "optimal")

_ROOT = 0
_HOST_BACKENDS = ("gloo", "mpi", "ucc")


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
        with together(f"the reduction of '{name}'", RunError):
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

        with together(f"the reduction of '{self._name}'", RunError):
            self._work.wait()


def host_group() -> dist.ProcessGroup:
    """Return a group of all processes that reduces in the memory of the host.

    It is the application's if its backend can; all processes have to ask for it together.
    """
    assert dist.group.WORLD is not None
    if any(name in dist.get_backend() for name in _HOST_BACKENDS):
        return dist.group.WORLD
    made = dist.new_group(backend="gloo", timeout=patience())
    assert isinstance(made, dist.ProcessGroup)
    return made


def align(device: Device) -> None:
    """Give the device of every process the states that process 0 has.

    All processes have to call this together. Raises `SambaError` if their programs do not fit
    together, and if a process has ended.
    """
    group = host_group()
    with together("the exchange of parameters"):
        require_alike(device.program, group)
        states = exchanged(device.program)
        mine = device.executable.state()
        present = torch.tensor([symbol.name in mine for symbol in states], dtype=torch.uint8)
        dist.broadcast(present, _ROOT, group=group)
        received: dict[str, np.ndarray] = {}
        for symbol, here in zip(states, present.tolist(), strict=True):
            if here:
                received[symbol.name] = _from_root(symbol, mine.get(symbol.name), group)
    if dist.get_rank() != _ROOT:
        device.executable.write(received)


def checked_mode(mode: str) -> Mode:
    """Return `mode`. Raises `SambaError` if it is none."""
    for known in MODES:
        if mode == known:
            return known
    from pef.wording import did_you_mean

    raise SambaError(
        f"there is no data_parallel_mode '{mode}'{did_you_mean(mode, MODES)}; it is one of "
        f"{', '.join(MODES)}"
    )


class Replicas:
    """The processes that train one model: whether they have met, and are alike since."""

    def __init__(self, profiler: Profiler) -> None:
        self._profiler = profiler
        self.met = False
        """Whether they have met since the PEF was loaded."""
        self._told = False

    def part(self) -> None:
        """Forget that they have met: another PEF comes."""
        self.met = self._told = False

    def meet(self, device: Device) -> None:
        """Join the others, and give all of them what process 0 has.

        Raises `SambaError` as `join` and `align` do.
        """
        join()
        try:
            with self._profiler.event("PyRT_SET_TENSORS_BROADCAST"):
                align(device)
        except SambaError:  # in all of them: a meeting is everybody's
            leave_group_at_exit()
            raise
        self.met = True

    def reduction(self, device: Device, mode: Mode) -> Mode:
        """Return how to reduce gradients in a run; in the first one the processes meet."""
        if not self.met:
            self.meet(device)
        return mode

    def tell_if_apart(self, program: Program, chosen: Iterable[Selection]) -> None:
        """Warn, once, of runs that update the replica of one process of several by its own data."""
        others = launched_together() - 1
        if self._told or not others or not any(_updates_alone(program, part) for part in chosen):
            return
        self._told = True
        from pef.warned import warn

        warn(
            f"this process was launched together with {others} more, and trains for itself: the "
            f"run reduces no gradients, though the PEF has REDUCE sections; give session.run "
            f"data_parallel=args.data_parallel, and the command line --data-parallel"
        )


def _updates_alone(program: Program, chosen: Selection) -> bool:
    """Return whether optimizers run, and gradients are not reduced that could be."""
    if chosen.reduction != "none" or all(s.type.name != "REDUCE" for s in program.sections):
        return False
    if chosen.section_types is not None:
        return "OPT" in chosen.section_types
    calls = range(len(program.schedule)) if chosen.calls is None else chosen.calls
    ids = chosen.section_ids or [program.schedule[call] for call in calls]
    return any(program.sections[number].type.name == "OPT" for number in ids)


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
