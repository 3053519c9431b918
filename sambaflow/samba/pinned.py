"""Which tensors go through pinned memory.

The device here reads and writes the memory of the host wherever it is, so pinning decides nothing:
what an application marks is remembered and told back.
"""

from __future__ import annotations

_fast: set[str] = set()


def is_fast_access(name: str) -> bool:
    """Return whether the tensor called `name` is marked for fast access."""
    return name in _fast


def set_fast_access(name: str, wanted: bool = True) -> None:
    """Mark the tensor called `name`, which may be a gradient that has no SambaTensor, or unmark."""
    if wanted:
        _fast.add(name)
    else:
        _fast.discard(name)


class _Pinning:
    """Whether the application has asked for pinned memory."""

    wanted = False


def enable_pinned_memory() -> None:
    """Ask for pinned memory: remembered, and told by `use_pinned_memory`.

    There is no transfer that it could speed up. The device reads a contiguous tensor of the right
    type where it is; page-locked staging memory would add a copy to that.
    """
    _Pinning.wanted = True


def disable_pinned_memory() -> None:
    """Take back `enable_pinned_memory`."""
    _Pinning.wanted = False


def use_pinned_memory() -> bool:
    """Return whether the application has asked for pinned memory."""
    return _Pinning.wanted
