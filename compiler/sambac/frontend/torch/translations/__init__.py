"""Operators of PyTorch that its ONNX exporter translates wrongly for training, translated anew."""

from __future__ import annotations

from .table import translations

__all__ = ["translations"]
