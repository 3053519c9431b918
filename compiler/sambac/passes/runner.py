"""Run passes in order, verify the graph after each, and show it to those who watch.

One environment variable, for people who debug the compiler, lets folders watch: `SAMBA_DUMP`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import onnx
import onnx_ir as ir

from pef.files import write_text
from sambac.errors import InternalError
from sambac.graph.decisions import Decisions
from sambac.graph.nodes import (
    all_graphs,
    all_nodes,
    first_unmade,
    has_subgraphs,
    own_values,
)
from sambac.graph.protos import skeleton
from sambac.kernels.registry import why_not_runnable

from .base import (
    CONSTANT_OUTPUTS,
    FEW_BITS,
    FUNCTIONS,
    MAYBE_WITHOUT_ELEMENTS,
    OUT_OF_ORDER,
    SUBGRAPHS,
    WITHOUT_ELEMENTS,
    WITHOUT_KERNEL,
    Pass,
)
from .legalize.check_legal import check_legal

Observer = Callable[[str, ir.Model, float], None]
"""Called after each pass with its name, the graph, which it must not change, and its seconds."""


_watching: ContextVar[tuple[Observer, ...]] = ContextVar("watching", default=())


@contextmanager
def watched_by(*observers: Observer) -> Iterator[None]:
    """Let `observers` watch the passes of all compilations inside, in this thread."""
    token = _watching.set((*_watching.get(), *observers))
    try:
        yield
    finally:
        _watching.reset(token)


def watching() -> tuple[Observer, ...]:
    """Return who watches compilations here: those of `watched_by`, and the folder of dumps."""
    folder = dump_folder()
    return (*_watching.get(), *((dumped_to(folder),) if folder else ()))


@dataclass(frozen=True)
class PassContext:
    """What every run of passes in a compilation has in common: who watches, and what is decided."""

    observers: tuple[Observer, ...] = ()
    decisions: Decisions = field(default_factory=Decisions)

    def run(self, model: ir.Model, passes: Sequence[Pass], *, legal_from: int = 0) -> None:
        """Run `passes` over `model`, in place.

        A pass that concerns nothing in the model is passed over. After pass number `legal_from`,
        and every later one that changes it, the graph has to be in legal form; the passes before it
        are those that establish it. Raises `InternalError` naming the pass that broke the form.
        """
        contents = Contents(model)
        for number, step in enumerate(passes):
            begin = time.perf_counter()
            changed = contents.concern(step) and step(model).modified
            seconds = time.perf_counter() - begin
            for observe in self.observers:
                observe(step.name, model, seconds)
            if number == legal_from or (changed and number > legal_from):
                problems = check_legal(model)
                if problems:
                    raise InternalError(f"after the pass {step.name}: {problems[0]}")
            if changed:
                contents = Contents(model)


class Contents:
    """What a model has that passes concern, each found when it is first asked for.

    It holds for as long as the model does not change.
    """

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._has: dict[str, bool] = {}

    @cached_property
    def operators(self) -> frozenset[str]:
        """The types of its operators, in subgraphs and functions too."""
        bodies = (self._model.graph, *self._model.functions.values())
        return frozenset(node.op_type for body in bodies for node in all_nodes(body))

    def concern(self, step: Pass) -> bool:
        """Tell whether `step` may change or refuse the model."""
        if step.operators is None or not step.operators.isdisjoint(self.operators):
            return True
        return any(map(self._found, step.operators & _HAS.keys()))

    def _found(self, what: str) -> bool:
        if what not in self._has:
            self._has[what] = _HAS[what](self._model)
        return self._has[what]


def _has_functions(model: ir.Model) -> bool:
    return bool(model.functions)


def _has_subgraphs(model: ir.Model) -> bool:
    bodies = (model.graph, *model.functions.values())
    return any(node.attributes and has_subgraphs(node) for body in bodies for node in body)


def _has_constant_outputs(model: ir.Model) -> bool:
    return any(value.is_initializer() for value in model.graph.outputs)


def _is_out_of_order(model: ir.Model) -> bool:
    return first_unmade(model.graph) is not None


def _lacks_kernels(model: ir.Model) -> bool:
    return any(
        why_not_runnable(node, model.opset_imports) is not None
        or any(value.type is None for value in node.outputs if value.name)
        for node in all_nodes(model.graph)
    )


def _has_empty_values(model: ir.Model) -> bool:
    return any(0 in shape for shape in _shapes(model))


def _may_have_empty_values(model: ir.Model) -> bool:
    return any(not isinstance(size, int) or size == 0 for each in _shapes(model) for size in each)


def _shapes(model: ir.Model) -> Iterator[ir.Shape]:
    return (value.shape for value in _all_values(model) if value.shape is not None)


def _has_few_bits(model: ir.Model) -> bool:
    return any(
        dtype.bitwidth < 8 or (dtype.bitwidth == 8 and dtype.is_floating_point())
        for dtype in {value.dtype for value in _all_values(model)}
        if dtype is not None and dtype not in (ir.DataType.STRING, ir.DataType.UNDEFINED)
    )


def _all_values(model: ir.Model) -> Iterator[ir.Value]:
    return (value for graph in all_graphs(model.graph) for value in own_values(graph))


_HAS: Mapping[str, Callable[[ir.Model], bool]] = {
    FUNCTIONS: _has_functions,
    SUBGRAPHS: _has_subgraphs,
    CONSTANT_OUTPUTS: _has_constant_outputs,
    OUT_OF_ORDER: _is_out_of_order,
    WITHOUT_KERNEL: _lacks_kernels,
    WITHOUT_ELEMENTS: _has_empty_values,
    MAYBE_WITHOUT_ELEMENTS: _may_have_empty_values,
    FEW_BITS: _has_few_bits,
}
"""How a model is asked for what passes concern besides types of operators."""


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
