"""Tensors of a recording that somebody still holds when it is over, where nothing takes them out.

A tensor without values in a place that the recording does not know, such as an attribute of another
package, would meet whoever reads it next.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from types import FrameType, ModuleType

import torch

from pef.wording import listed
from sambac.errors import CompileError

_EXPORTERS = ("torch._", "torch.export", "torch.fx")
"""Parts of PyTorch that may keep what they recorded: nobody else sees it."""


def require_released(name: str, survivors: Callable[[], Sequence[torch.Tensor]]) -> None:
    """Raise `CompileError` if something keeps the `survivors` of recording the module `name`."""
    if not survivors():
        return
    gc.collect()  # there may be circles that nobody holds
    alive = survivors()
    own = {id(alive)}
    places = [place for tensor in alive for place in _places(tensor, own)]
    if places:
        raise CompileError(
            f"{name} keeps tensors in {listed(sorted({*places}), separator=', ')}, where they are "
            "left without values, as nothing can be put back there; keep them in attributes of a "
            "module, or return them"
        )


def _places(tensor: torch.Tensor, own: set[int]) -> Iterator[str]:
    """Yield where `tensor` is held, but for frames, PyTorch's exporters, and what is our `own`."""
    found = gc.get_referrers(tensor)
    holders = [one for one in found if not isinstance(one, FrameType) and id(one) not in own]
    with torch._C.DisableTorchFunction():
        of_python = tensor._use_count() == 1  # type: ignore[attr-defined]
    if not holders and of_python:  # such as an array of numpy, or what gc.freeze() has hidden
        yield "a place that cannot be seen"
    for holder in holders:
        around = [one for one in gc.get_referrers(holder) if not isinstance(one, FrameType)]
        owners = [one for one in around if getattr(one, "__dict__", None) is holder]
        if not any(map(_is_exporters, (holder, *(owners or around)))):
            yield _spelled(owners[0] if owners else holder, tensor)


def _is_exporters(holder: object) -> bool:
    return type(holder).__module__.startswith(_EXPORTERS)


def _spelled(owner: object, tensor: torch.Tensor) -> str:
    """Return what messages call the place at which `owner` has `tensor`."""
    for key, value in getattr(owner, "__dict__", {}).items():
        if value is tensor:
            called = owner if isinstance(owner, ModuleType) else type(owner)
            return f"{called.__name__}.{key}"
    return f"a {type(owner).__name__}"
