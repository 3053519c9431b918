"""SambaFlow's Python packages over this project's compiler and runtime: `sambaflow.samba`."""

from __future__ import annotations

from importlib.metadata import version

__all__ = ["__version__", "is_demo"]

__version__ = version("sambaflow")
is_demo = False
"""Whether this is a build for demonstrations, which leaves parts out; it is none."""
