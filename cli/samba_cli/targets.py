"""Where results go: refused at once where they could not be written in the end."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from .shell import Wrong


def check_target(output: str | os.PathLike[str], source: str | os.PathLike[str]) -> None:
    """Refuse early what would fail after minutes: an output that cannot be written."""
    target = Path(output)
    if target.is_dir():
        raise Wrong(f"{target} is a folder; give a file name for the output.")
    if target.exists() and not target.is_file():
        raise Wrong(f"{target} is a device or pipe; give a file name for the output.")
    if target.exists() and os.path.samefile(target, source):
        raise Wrong(f"{target} is the input; writing there would destroy it.")
    folder = target.parent
    if not folder.is_dir():
        raise Wrong(f"the folder {folder} does not exist, so {target} cannot be made.")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise Wrong(f"cannot write into {folder}: {error.strerror}.") from error
