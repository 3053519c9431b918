"""Options as pydantic models."""

from __future__ import annotations

from sambaflow.submodules import on_demand

__getattr__ = on_demand(__name__, "args")
