"""Rules."""

from __future__ import annotations

from .program import Program


def check_program(program: Program, *, essential: bool = False) -> list[str]:
    """Faults."""
    return []
