"""Frontends: whatever a user hands in becomes an onnx_ir model and its signature."""

from __future__ import annotations

from .dispatch import load
from .source import Signature, Source
from .verdict import judging

__all__ = ["Signature", "Source", "judging", "load"]
