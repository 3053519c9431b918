"""Environment variables the compiler reads, all of them, for people who debug it."""

from __future__ import annotations

import os
from pathlib import Path


def dump_folder() -> Path | None:
    """`SAMBA_DUMP=FOLDER`: write the graph as ONNX text after every pass."""
    folder = os.environ.get("SAMBA_DUMP")
    return Path(folder) if folder else None
