"""What an application can tell the mapper."""

from __future__ import annotations

from sambaflow.submodules import on_demand

__getattr__ = on_demand(__name__, "metadata")
