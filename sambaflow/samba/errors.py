"""What goes wrong between an application, its PEF and the device."""

from __future__ import annotations


class SambaError(RuntimeError):
    """A mistake of the application: what came, what was expected, and the cure."""
