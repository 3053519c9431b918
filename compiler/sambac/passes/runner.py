"""Run passes in order, verify the graph after each, and show it to those who watch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir

from pef.files import write_text
from sambac.errors import InternalError
from sambac.graph.skeleton import skeleton

from .base import Pass
from .check_legal import check_legal

Observer = Callable[[str, ir.Model, float], None]
"""Called after each pass with its name, the graph, which it must not change, and its seconds."""


@dataclass(frozen=True)
class PassContext:
    """What every run of passes in a compilation has in common: who watches them."""

    observers: tuple[Observer, ...] = ()

    def run(self, model: ir.Model, passes: Sequence[Pass], *, legal_from: int = 0) -> None:
        """Run `passes` over `model`, in place.

        After pass number `legal_from` and every later one the graph has to be in legal form; the
        passes before it are those that establish it. Raises `InternalError` naming the pass that
        broke the form.
        """
        for number, step in enumerate(passes):
            begin = time.perf_counter()
            step(model)
            seconds = time.perf_counter() - begin
            for observe in self.observers:
                observe(step.name, model, seconds)
            problems = check_legal(model) if number >= legal_from else []
            if problems:
                raise InternalError(f"after the pass {step.name}: {problems[0]}")


def dumped_to(folder: Path) -> Observer:
    """Return what writes the graph after each pass to the next free number in `folder`."""

    def dump(name: str, model: ir.Model, _seconds: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.glob("*.txt")))
        write_text(folder / f"{number:03d}-{name}.txt", text_of(model))

    return dump


def text_of(model: ir.Model) -> str:
    """Return the graph of `model` as ONNX text, an operator a line; large weights are inputs."""
    message = skeleton(model)
    del message.graph.value_info[:]
    return str(onnx.printer.to_text(message)).replace(" \n", "\n").strip() + "\n"
