"""Frontends: whatever a user hands in becomes an onnx_ir model and its signature."""

from __future__ import annotations

from .dispatch import judging, load
from .exported import take_apart
from .source import Signature, Source

__all__ = ["Signature", "Source", "judging", "load", "take_apart"]
