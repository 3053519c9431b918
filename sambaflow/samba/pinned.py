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
