"""Operators that libraries register, with gradients of their own, and that translations know.

Only where a library has been imported are its operators there.
"""

from __future__ import annotations

import torch
from torch._ops import OpOverload


def grouped_products() -> OpOverload | None:
    """Return the operator by which transformers computes mixtures of experts."""
    packet = getattr(torch.ops.transformers, "grouped_mm_fallback", None)
    return None if packet is None else packet.default
