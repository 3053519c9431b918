"""A program of which only what a test is about is there."""

from __future__ import annotations

from typing import Any

import pef


def bare_program(**fields: Any) -> pef.Program:
    """Return a program with these fields; all others are empty."""
    empty = dict.fromkeys(
        ("regions", "allocations", "symbols", "programs", "sections", "schedule", "graphs"), ()
    )
    whole = {
        **empty,
        "segments": (),
        "producer": pef.Producer("test", "0", "{}"),
        "requires": pef.Requirements(),
        "arch": "sn40l",
    }
    return pef.Program(**{**whole, **fields})
