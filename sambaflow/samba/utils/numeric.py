"""Numbers about number formats."""

from __future__ import annotations

__all__ = ["MAX_BF16_TRUNCATE_NORMAL_REL"]

MAX_BF16_TRUNCATE_NORMAL_REL = 2.0**-7
"""The largest relative error of a normal number cut off, not rounded, to BF16's 7 bits."""
