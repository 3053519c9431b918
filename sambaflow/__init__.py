"""SambaFlow's Python packages over this project's compiler and runtime: `sambaflow.samba`."""

from __future__ import annotations

from importlib.metadata import version

from sambaflow.submodules import on_demand

__all__ = ["__version__", "is_demo", "is_internal"]

__version__ = version("sambaflow")


def is_demo() -> bool:
    """Return whether this is a build for demonstrations, which leaves parts out: it is none."""
    return False


def is_internal() -> bool:
    """Return whether this is a vendor's internal build: it is none."""
    return False


__getattr__ = on_demand(__name__, "frameworks", "logging", "mac", "samba", "sambacollections")
