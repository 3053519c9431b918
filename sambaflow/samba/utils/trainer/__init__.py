"""Training loops: the same on the device and on the host."""

from __future__ import annotations

from sambaflow.submodules import on_demand

__getattr__ = on_demand(__name__, "samba", "torch")
