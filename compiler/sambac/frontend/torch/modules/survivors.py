"""Tensors of a recording that somebody still holds when it is over, where nothing takes them out.

A tensor without values in a place that the recording does not know, such as an attribute of another
package, would meet whoever reads it next.
"""

from __future__ import annotations

import gc
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from logging import LogRecord
from types import CellType, FrameType, ModuleType, TracebackType

import torch
from torch._subclasses.fake_tensor import FakeTensor

from pef.object_forms import attributes_of
from pef.wording import listed
from sambac.errors import CompileError

_RECORDERS = ("torch._", "torch.export", "torch.fx", "sambac.")
"""What may keep what it recorded: nobody else sees it."""

_REMEMBERING = (FrameType, TracebackType, LogRecord)
"""What shows a tensor to people alone: it belongs to an error, or to a message of a log."""

_COLLECTIONS = (dict, list, tuple, set, frozenset, CellType)


def require_released(name: str, survivors: Callable[[], Sequence[torch.Tensor]]) -> None:
    """Raise `CompileError` if something keeps the `survivors` of recording the module `name`.

    They differ from each other. Errors, and messages that a log keeps, may keep them.
    """
    if not _held_elsewhere(survivors()):
        return
    gc.collect()  # there may be circles that nobody holds
    alive = survivors()
    holders = _Holders.of(alive, [id(alive), *_running()])
    places = {place for tensor in alive for place in _places(tensor, holders)}
    if places:
        raise CompileError(
            f"{name} keeps tensors in {listed(sorted(places), separator=', ')}, where they are "
            "left without values, as nothing can be put back there; keep them in attributes of a "
            "module, or return them"
        )


def _held_elsewhere(tensors: Sequence[torch.Tensor]) -> bool:
    """Tell whether others than `tensors` and the shapes of the recording hold any of them.

    Counting is quick, where finding out who it is walks through all that there is in Python.
    """
    for at in range(len(tensors)):
        # One is held by `tensors`, and by the call that counts.
        if sys.getrefcount(tensors[at]) != 2 + _times_tracked(tensors[at]):
            return True
    return False


def _times_tracked(tensor: torch.Tensor) -> int:
    """Return how often the shapes of the recording hold `tensor`, whose sizes they know."""
    shapes = tensor.fake_mode.shape_env if isinstance(tensor, FakeTensor) else None
    tracked = (shapes.tracked_fakes if shapes is not None else None) or ()
    return sum(one.fake is tensor for one in tracked)


def _running() -> list[int]:
    """Return the ids of the frames of functions that run."""
    running, frame = list[int](), sys._getframe()
    while frame.f_back is not None:
        running.append(id(frame))
        frame = frame.f_back
    return [*running, id(frame)]


@dataclass(frozen=True)
class _Holders:
    """Who holds some tensors, who holds the collections among these, and so on upward."""

    known: Mapping[int, object]  # by id
    by_held: Mapping[int, Iterable[int]]  # ids, as lists of objects would hold them too

    @classmethod
    def of(cls, tensors: Sequence[torch.Tensor], own: Iterable[int]) -> _Holders:
        """Return the holders of `tensors` but those with the ids of our `own`.

        Each look for holders walks through all that there is in Python: there is one for all
        tensors, one for all collections that hold them, and so on.
        """
        known: dict[int, object] = {id(tensor): tensor for tensor in tensors}
        by_held = defaultdict[int, list[int]](list)
        own = {*own, id(known)}
        level = set(known)
        while level:
            asked = tuple(map(known.__getitem__, level))
            found = gc.get_referrers(*asked)
            fresh = {id(one): one for one in found if id(one) not in own and one is not asked}
            for at, one in fresh.items():
                for held in level.intersection(map(id, gc.get_referents(one))):
                    by_held[held].append(at)
            level = {at for at in fresh.keys() - known if type(fresh[at]) in _COLLECTIONS}
            known |= fresh
            del asked, found, fresh  # the next look is not to find them
        return cls(known, by_held)

    def around(self, holder: object) -> list[object]:
        """Return what holds `holder`."""
        return [self.known[one] for one in self.by_held.get(id(holder), ())]


def _places(tensor: torch.Tensor, holders: _Holders) -> list[str]:
    """Return where `tensor` is held, but for what records or remembers."""
    around = holders.around(tensor)
    with torch._C.DisableTorchFunction():
        of_python = tensor._use_count() == 1  # type: ignore[attr-defined]
    if not around and of_python:  # such as an array of numpy, or what gc.freeze() has hidden
        return ["a place that cannot be seen"]
    return [_spelled(one, tensor, holders) for one in around if _is_left(one, holders)]


def _is_left(holder: object, holders: _Holders) -> bool:
    """Tell whether `holder` is kept by others than what records, and what remembers."""
    pending, seen = [holder], set[int]()
    while pending:
        one = pending.pop()
        seen.add(id(one))
        if isinstance(one, _REMEMBERING) or type(one).__module__.startswith(_RECORDERS):
            continue
        around = holders.around(one)
        if not around:
            return True
        pending += [other for other in around if id(other) not in seen]
    return False


def _spelled(holder: object, tensor: torch.Tensor, holders: _Holders) -> str:
    """Return what messages call the place at which `holder` has `tensor`."""
    owners = [one for one in holders.around(holder) if attributes_of(one) is holder]
    owner = owners[0] if owners else holder
    for key, value in (attributes_of(owner) or {}).items():
        if value is tensor:
            called = owner if isinstance(owner, ModuleType) else type(owner)
            return f"{called.__name__}.{key}"
    return f"a {type(owner).__name__}"
