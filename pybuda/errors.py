"""What this API raises."""

from __future__ import annotations


class PyBudaError(RuntimeError):
    """A mistake of the program: what came, and what was expected."""
