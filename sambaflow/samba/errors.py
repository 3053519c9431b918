"""What goes wrong between an application, its PEF and the device."""

from __future__ import annotations


class SambaError(RuntimeError):
    """A mistake of the application, in sentences that say what came, what was expected, the cure."""
