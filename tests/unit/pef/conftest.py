"""A small program that uses every table of the format, and ways to write and spoil it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pef_formats import format_0_1

import pef

Spoil = Callable[[int, bytes], None]


@pytest.fixture
def program() -> pef.Program:
    """Two calls: y = f(x, w); then y is updated in place, and a sequence comes out."""
    return format_0_1()


@pytest.fixture
def path(program: pef.Program, tmp_path: Path) -> Path:
    """The program as a file."""
    path = tmp_path / "small.pef"
    pef.write(program, path)
    return path


@pytest.fixture
def spoil(path: Path) -> Spoil:
    """Overwrites bytes of the file in place."""

    def overwrite(position: int, data: bytes) -> None:
        descriptor = os.open(path, os.O_WRONLY)
        try:
            os.pwrite(descriptor, data, position)
        finally:
            os.close(descriptor)

    return overwrite
