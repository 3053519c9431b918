"""Tensors of a recording that somebody still holds when it is over, where nothing takes them out.

A tensor without values in a place that the recording does not know, such as an attribute of another
package, would meet whoever reads it next.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from itertools import repeat
from logging import LogRecord
from types import CellType, FrameType, ModuleType, TracebackType

import torch

from pef.object_parts import attributes_of
from pef.wording import listed
from sambac.errors import CompileError

_RECORDERS = ("torch._", "torch.export", "torch.fx", "sambac.")
"""What may keep what it recorded: nobody else sees it."""

_REMEMBERING = (FrameType, TracebackType, LogRecord)
"""What shows a tensor to people alone: it belongs to an error, or to a message of a log."""

_COLLECTIONS = (dict, list, tuple, set, frozenset, CellType)


def require_released(name: str, survivors: Callable[[], Sequence[torch.Tensor]]) -> None:
    """Raise `CompileError` if something keeps the `survivors` of recording the module `name`.

    But for errors and messages that a log keeps.
    """
    if not survivors():
        return
    gc.collect()  # there may be circles that nobody holds
    alive = survivors()
    own = {id(alive), *_running()}
    places = {place for tensor in alive for place in _places(tensor, own)}
    if places:
        raise CompileError(
            f"{name} keeps tensors in {listed(sorted(places), separator=', ')}, where they are "
            "left without values, as nothing can be put back there; keep them in attributes of a "
            "module, or return them"
        )


def _running() -> list[int]:
    """Return the ids of the frames of functions that run."""
    running, frame = list[int](), sys._getframe()
    while frame.f_back is not None:
        running.append(id(frame))
        frame = frame.f_back
    return [*running, id(frame)]


def _places(tensor: torch.Tensor, own: set[int]) -> list[str]:
    """Return where `tensor` is held, but for what records or remembers, and what is our `own`."""
    holders = _holders(tensor, own)
    with torch._C.DisableTorchFunction():
        of_python = tensor._use_count() == 1  # type: ignore[attr-defined]
    if not holders and of_python:  # such as an array of numpy, or what gc.freeze() has hidden
        return ["a place that cannot be seen"]
    left = [holder for holder in holders if _is_left(holder, {*own, id(holders)})]
    return [*map(_spelled, left, repeat(tensor), repeat(own))]  # no cell of ours has it


def _holders(held: object, own: set[int]) -> list[object]:
    return [one for one in gc.get_referrers(held) if id(one) not in own]


def _is_left(holder: object, own: set[int]) -> bool:
    """Tell whether `holder` is kept by others than what records, and what remembers."""
    pending, seen = [holder], set[int]()
    own = {*own, id(pending)}
    while pending:
        one = pending.pop()
        seen.add(id(one))
        if isinstance(one, _REMEMBERING) or type(one).__module__.startswith(_RECORDERS):
            continue
        around = _holders(one, own) if type(one) in _COLLECTIONS else []
        if not around:
            return True
        own.add(id(around))
        pending += [other for other in around if id(other) not in seen]
    return False


def _spelled(holder: object, tensor: torch.Tensor, own: set[int]) -> str:
    """Return what messages call the place at which `holder` has `tensor`."""
    owners = [one for one in _holders(holder, own) if attributes_of(one) is holder]
    owner = owners[0] if owners else holder
    for key, value in (attributes_of(owner) or {}).items():
        if value is tensor:
            called = owner if isinstance(owner, ModuleType) else type(owner)
            return f"{called.__name__}.{key}"
    return f"a {type(owner).__name__}"
