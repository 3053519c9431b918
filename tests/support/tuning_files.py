"""Tuning files that tests write, and the formulations of PEFs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pef
from pef.report import report


def written(folder: Path, text: str) -> Path:
    path = folder / "host.toml"
    path.write_text(text, "utf-8")
    return path


def formulations(path: Path) -> Mapping[str, tuple[str, str]]:
    """Return the formulation of each operator of a PEF, and by what it was chosen."""
    with pef.open(path) as file:
        rows = report(file.program)["formulations"]
    return {row["operator"]: (row["formulation"], row["by"]) for row in rows}
