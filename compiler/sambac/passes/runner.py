"""Run passes in order, verify the graph after each, and show it to those who watch.

One environment variable, for people who debug the compiler, lets folders watch: `SAMBA_DUMP`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir

from pef.files import write_text
from sambac.errors import InternalError
from sambac.graph.protos import skeleton
from sambac.graph.traversal import all_nodes, has_subgraphs
from sambac.kernels.registry import why_not_runnable

from .base import CONSTANT_OUTPUTS, FUNCTIONS, SUBGRAPHS, WITHOUT_KERNEL, Pass
from .check_legal import check_legal

Observer = Callable[[str, ir.Model, float], None]
"""Called after each pass with its name, the graph, which it must not change, and its seconds."""


@dataclass(frozen=True)
class PassContext:
    """What every run of passes in a compilation has in common: who watches them."""

    observers: tuple[Observer, ...] = ()

    def run(self, model: ir.Model, passes: Sequence[Pass], *, legal_from: int = 0) -> None:
        """Run `passes` over `model`, in place.

        A pass that concerns none of the operators is passed over. After pass number `legal_from`
        and every later one the graph has to be in legal form; the passes before it are those that
        establish it. Raises `InternalError` naming the pass that broke the form.
        """
        operators = operators_in(model)
        for number, step in enumerate(passes):
            begin = time.perf_counter()
            runs = concerns(step, model, operators)
            if runs:
                step(model)
            seconds = time.perf_counter() - begin
            for observe in self.observers:
                observe(step.name, model, seconds)
            if number == legal_from or (runs and number > legal_from):
                problems = check_legal(model)
                if problems:
                    raise InternalError(f"after the pass {step.name}: {problems[0]}")
            if runs:
                operators = operators_in(model)


def concerns(step: Pass, model: ir.Model, operators: AbstractSet[str]) -> bool:
    """Tell whether `step` may change or refuse `model`, which has these `operators`."""
    if step.operators is None or not step.operators.isdisjoint(operators):
        return True
    return WITHOUT_KERNEL in step.operators and not _runs_as_it_is(model)


def _runs_as_it_is(model: ir.Model) -> bool:
    """Tell whether onnxruntime has a kernel for every operator, and every value has a type."""
    return all(
        why_not_runnable(node, model.opset_imports) is None
        and all(value.type is not None for value in node.outputs if value.name)
        for node in all_nodes(model.graph)
    )


def operators_in(model: ir.Model) -> frozenset[str]:
    """Return the types of operators that `model` has, and what `Pass.operators` knows besides."""
    bodies = (model.graph, *model.functions.values())
    nodes = [node for body in bodies for node in all_nodes(body)]
    found = {node.op_type for node in nodes}
    if model.functions:
        found.add(FUNCTIONS)
    if any(node.attributes and has_subgraphs(node) for node in nodes):
        found.add(SUBGRAPHS)
    if any(value.is_initializer() for value in model.graph.outputs):
        found.add(CONSTANT_OUTPUTS)
    return frozenset(found)


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


def dump_folder() -> Path | None:
    """`SAMBA_DUMP=FOLDER`: write the graph as ONNX text after every pass."""
    folder = os.environ.get("SAMBA_DUMP")
    return Path(folder) if folder else None
