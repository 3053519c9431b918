"""Checks that a device computes the same again."""

from __future__ import annotations

from .consistency import consistency_test
from .gold import TestWithGold

__all__ = ["TestWithGold", "consistency_test"]
