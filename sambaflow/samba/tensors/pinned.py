"""Which tensors go through pinned memory.

The device here reads and writes the memory of the host wherever it is, so pinning decides nothing:
what an application marks is remembered and told back.
"""

from __future__ import annotations

from collections.abc import Iterable

_marks: dict[str, bool] = {}


def is_fast_access(name: str) -> bool:
    """Return whether the tensor called `name` is marked for fast access."""
    return _marks.get(name, False)


def set_fast_access(name: str, wanted: bool = True) -> None:
    """Mark the tensor called `name`, which may be a gradient that has no SambaTensor, or unmark."""
    _marks[name] = wanted


def mark_traced(names: Iterable[str]) -> None:
    """Mark inputs and gradients of outputs, as tracing does, but what somebody has unmarked."""
    for name in names:
        _marks.setdefault(name, True)


class _Pinning:
    """Whether the application has asked for pinned memory."""

    wanted = False


def enable_pinned_memory() -> None:
    """Ask for pinned memory: remembered, and told by `use_pinned_memory`.

    There is no transfer that it could speed up. The device is in the memory of the host and copies
    each input once; page-locked staging memory would add another copy.
    """
    _Pinning.wanted = True


def disable_pinned_memory() -> None:
    """Take back `enable_pinned_memory`."""
    _Pinning.wanted = False


def use_pinned_memory() -> bool:
    """Return whether the application has asked for pinned memory."""
    return _Pinning.wanted


def forget() -> None:
    """Forget all marks, and that anybody has asked for pinned memory."""
    _marks.clear()
    disable_pinned_memory()
