"""Which tests are numeric: they hold what a program calculates beside what PyTorch does.

The long run repeats them with other kernels of PyTorch, and with other numbers of threads: what
hangs on rounding fails there. Tests of files, messages and plans have nothing to gain from that.
"""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parents[1]

NUMERIC = (
    "ops",
    "fuzz/test_training_fuzz.py",
    "unit/autodiff",
    "unit/frontend",
    "unit/training",
    "e2e/test_absent_weights.py",
)
"""Folders and modules under `TESTS`."""


def is_numeric(module: Path) -> bool:
    """Tell whether the tests of a module are numeric."""
    return any(module.is_relative_to(TESTS / place) for place in NUMERIC)
