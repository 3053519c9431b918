"""The frontend for PyTorch, the only part of the compiler that imports torch; loaded on demand."""

from __future__ import annotations

from .files.models import unsound
from .loading import load_torch

__all__ = ["load_torch", "unsound"]
