"""Operators that packages other than PyTorch register, and that are translated like its own.

They have backward methods of their own, which are not needed: what they are translated to is
differentiated.
"""

from __future__ import annotations

import torch
from torch._ops import OpOverload


def rows_in_groups() -> OpOverload | None:
    """Return how transformers multiplies the rows of experts; None if it is not imported."""
    packet = getattr(torch.ops.transformers, "grouped_mm_fallback", None)
    return None if packet is None else packet.default
