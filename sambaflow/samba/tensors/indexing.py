"""Indices of tensors: index tensors hold whole numbers, whatever their type."""

from __future__ import annotations

import torch
from torch import Tensor

INDEXING = frozenset({Tensor.__getitem__, Tensor.__setitem__})
"""The functions whose second argument is an index.

They are met where torch calls them, not as methods of a class of ours: Python would take even
tensors without dimensions for sequences.
"""


def index_of(index: object) -> object:
    """Return `index` with floating-point index tensors as int64 ones.

    Raises IndexError for numbers that are not whole.
    """
    if isinstance(index, tuple):
        return tuple(index_of(part) for part in index)
    if isinstance(index, torch.Tensor) and index.is_floating_point():
        whole = index.long()
        if not bool((whole == index).all()):
            raise IndexError("an index tensor holds numbers that are not whole")
        return whole
    return index
