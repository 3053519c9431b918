"""Reports as JSON files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from pef.files import write_text

__all__ = ["save_json"]


def save_json(path: str | os.PathLike[str], content: Mapping[str, object]) -> None:
    """Write `content` to `path`, whole or not at all, and make its folder; raises OSError."""
    Path(path).absolute().parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(content, indent=2, sort_keys=True) + "\n")
