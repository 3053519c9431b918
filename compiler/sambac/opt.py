"""Passes run alone: which ones a user can name, and what each made of a model."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import onnx
import onnx_ir as ir

from pef.text import name_text, shape_text
from pef.wording import did_you_mean, listed

from .errors import CompileError
from .frontend import judging, load
from .graph.constants import is_absent
from .models import Model
from .options import CompileOptions
from .passes.base import Pass
from .passes.device_numbers.precision import raise_for_rounding, rounding
from .passes.device_numbers.round_numbers import RoundNumbers
from .passes.pipelines import (
    AFTER_GRADIENTS,
    BEFORE_GRADIENTS,
    LEGALIZE,
    SELECT_KERNELS,
    SELECT_TRAINING_KERNELS,
    SIMPLIFY,
    WHOLE_FOR_GRADIENTS,
)
from .passes.runner import PassContext
from .training.preview import lower_preview

STAGES: Mapping[str, tuple[Pass, ...]] = {
    "legalize": LEGALIZE,
    "simplify": SIMPLIFY,
    "select_kernels": SELECT_KERNELS,
    "select_training_kernels": SELECT_TRAINING_KERNELS,
    "before_gradients": BEFORE_GRADIENTS,
    "whole_for_gradients": WHOLE_FOR_GRADIENTS,
    "after_gradients": AFTER_GRADIENTS,
}
"""Passes that run together, by the name that stands for all of them."""

INFERENCE = ("legalize", "simplify", "select_kernels")
"""The stages of a compilation for inference."""

_PASSES: Mapping[str, tuple[Pass, ...]] = {
    step.name: (step,)
    for stage in (*STAGES.values(), rounding(CompileOptions(precision="mixed")))
    for step in stage
}
_SHOWN_AROUND = 1
_READABLE = 8


@dataclass(frozen=True)
class Snapshot:
    """A graph at one time: how many operators it has, those in its branches and bodies too.

    `lines` has one for each input, weight, operator (as ONNX text) and output.
    """

    operators: int
    lines: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True)
class PassRun:
    """What a pass did: its `name`, its `seconds`, and the graph `before` and `after` it."""

    name: str
    seconds: float
    before: Snapshot
    after: Snapshot

    @property
    def changed(self) -> bool:
        """Whether the graph is another one now."""
        return self.before != self.after

    def diff(self) -> list[str]:
        """Return the lines that went (`-`) and came (`+`), each with its neighbours."""
        lines = difflib.unified_diff(
            self.before.lines, self.after.lines, n=_SHOWN_AROUND, lineterm=""
        )
        return [line for line in lines if not line.startswith(("---", "+++"))]


def run_alone(
    model: Model, options: CompileOptions, names: Sequence[str] = INFERENCE
) -> list[PassRun]:
    """Run the passes or stages in `names` over `model`, and return what each did.

    Passes rely on the legal form. So what brings a model into it runs before them, unreported,
    unless some of that is among `names`. Raises `CompileError` for names that there are not, all of
    them, and for a model that cannot be compiled.
    """
    passes = _named(names)
    with judging((model, options)):
        source = load(model, options)
        lower_preview(source.model, source.name, PassContext())
        if any(isinstance(step, RoundNumbers) for step in passes):
            raise_for_rounding(source.model, source.name, PassContext())
        return list(_runs(source.model, passes))


def _runs(model: ir.Model, passes: Sequence[Pass]) -> Iterator[PassRun]:
    legal = {step.name for step in LEGALIZE}
    settled = max((n for n, step in enumerate(passes) if step.name in legal), default=-1)
    if settled < 0:
        PassContext().run(model, LEGALIZE, legal_from=len(LEGALIZE) - 1)
    seen: list[tuple[str, float, Snapshot]] = [("", 0.0, _snapshot(model))]

    def observe(name: str, changed: ir.Model, seconds: float) -> None:
        seen.append((name, seconds, _snapshot(changed)))

    whole = {step.name for step in passes} >= legal
    PassContext((observe,)).run(
        model, passes, legal_from=settled if whole or settled < 0 else len(passes)
    )
    for (_, _, before), (name, seconds, after) in pairwise(seen):
        yield PassRun(name, seconds, before, after)


def _snapshot(model: ir.Model) -> Snapshot:
    return Snapshot(sum(1 for _ in model.graph.all_nodes()), tuple(_lines(model.graph)))


def _lines(graph: ir.Graph) -> Iterator[str]:
    for value in graph.inputs:
        yield f"input {_typed(value)}"
    for value in graph.initializers.values():
        yield f"weight {_typed(value)}{_content(value.const_value)}"
    for node in graph:
        text = onnx.printer.to_text(ir.serde.serialize_node(node))
        yield from (line.rstrip() for line in text.splitlines())
    for value in graph.outputs:
        yield f"output {_typed(value)}"


def _typed(value: ir.Value) -> str:
    sizes = (
        None if value.shape is None else [d if isinstance(d, int) else d.value for d in value.shape]
    )
    element = "?" if value.dtype is None else value.dtype.name.lower()
    return f"{element} {shape_text(sizes)} {name_text(str(value.name))}"


def _content(tensor: ir.TensorProtocol | None) -> str:
    """Return the elements of a small tensor, the others have too many to be read."""
    if tensor is None or is_absent(tensor) or tensor.size > _READABLE:
        return ""
    return f" = {tensor.numpy().tolist()}"


def _named(names: Sequence[str]) -> tuple[Pass, ...]:
    known = {**_PASSES, **STAGES}
    unknown = [name for name in names if name not in known]
    if unknown:
        hints = [f"'{name}'{did_you_mean(name, known)}" for name in unknown]
        every = all(did_you_mean(name, known) for name in unknown)
        there = "" if every else f"; there are {', '.join(pass_names())}"
        raise CompileError(f"There is no pass {listed(hints)}{there}.")
    return tuple(step for name in names for step in known[name])


def pass_names() -> Iterator[str]:
    """Yield the names of stages and passes that `run_alone` takes."""
    yield from STAGES
    yield from sorted(_PASSES)
