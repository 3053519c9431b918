"""What SambaFlow adds to the frameworks that models are written in."""

from __future__ import annotations

from sambaflow.submodules import on_demand

__getattr__ = on_demand(__name__, "quantized")
