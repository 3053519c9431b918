"""Run passes in order, verify the graph after each, and dump it where somebody asked for that."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx_ir as ir

from pef.files import write_text
from sambac.errors import InternalError

from .base import Pass
from .check_legal import check_legal


def run_passes(
    model: ir.Model,
    passes: Sequence[Pass],
    *,
    legal_from: int = 0,
    dump: Path | None = None,
) -> None:
    """Run `passes` over `model`, in place.

    After pass number `legal_from` and every later one the graph has to be in legal form; the
    passes before it are those that establish it. `dump` is a folder that receives the graph as
    ONNX text after every pass. Raises `InternalError` naming the pass that broke the form.
    """
    for number, step in enumerate(passes):
        step(model)
        if dump is not None:
            _dump(model, dump, step.name)
        problems = check_legal(model) if number >= legal_from else []
        if problems:
            raise InternalError(f"after the pass {step.name}: {problems[0]}")


def _dump(model: ir.Model, folder: Path, name: str) -> None:
    """Write the graph to the next free number in `folder`; large weights stay out of the text."""
    folder.mkdir(parents=True, exist_ok=True)
    number = len(list(folder.glob("*.txt")))
    write_text(folder / f"{number:03d}-{name}.txt", str(model.graph))
