"""Parts of modules: `parameter`."""

from __future__ import annotations

from . import parameter

__all__ = ["parameter"]
