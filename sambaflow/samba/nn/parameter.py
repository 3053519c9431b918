"""SambaParameter under the name that applications import it by."""

from __future__ import annotations

from sambaflow.samba.tensors.tensor import SambaParameter

__all__ = ["SambaParameter"]
