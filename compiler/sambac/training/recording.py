"""The graph of a step while it grows, and the facts of it that are known so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from pef.program import SectionType, SymbolKind
from sambac.facts import Pack, State
from sambac.graph.editor import Editor

from .terms import Term


class StepGraph:
    """Appends to a model, and records what `StepFacts` has to say of what it appends.

    Names of symbols are promises to the user, so what is inside of the model gives way to them, and
    a name that its inputs, outputs or constants have already is a `CompileError`.
    """

    def __init__(self, model: ir.Model) -> None:
        self.editor = Editor(model)
        self.stages: dict[str, SectionType] = {}
        self.updates: dict[str, str] = {}
        self.states: dict[str, State] = {}
        self.argins: dict[str, str] = {}
        self.terms: dict[str, str] = {}
        self.packs: list[Pack] = []
        self.public: list[str] = []

    def state(self, name: str, dtype: ir.DataType, shape: Sequence[int], state: State) -> ir.Value:
        """Add an input that holds `state`."""
        self.states[name] = state
        return self.editor.input(name, dtype, shape)

    def argin(self, name: str, default: float) -> Term:
        """Return the argin `name`, a float64 scalar, which is added when first asked for."""

        def make() -> ir.Value:
            content = ir.Tensor(np.asarray(default, np.float64), name=name)
            self.argins[name] = name
            return self.state(name, ir.DataType.DOUBLE, (), State(SymbolKind.ARGIN, content))

        return self.once(("argin", name), make)

    def term(self, value: ir.Value) -> Term:
        """Return `value` as a term of this graph."""
        return Term.of(self.editor, value)

    def once(self, key: tuple[object, ...], make: Callable[[], ir.Value]) -> Term:
        """Return what `make` made when it was first called for `key`."""
        return Term(self.editor, self.editor.point.once(key, make))

    def pack(self, pack: Pack, like: ir.Value) -> ir.Value:
        """Add the flat input that spans the members of `pack`, of the element type of `like`."""
        self.packs.append(pack)
        assert like.dtype is not None
        elements = pack.size // like.dtype.numpy().itemsize
        return self.editor.input(pack.name, like.dtype, (elements,))

    def output(
        self, value: ir.Value, name: str, stage: SectionType, over: str | None = None
    ) -> ir.Value:
        """Make `value` the output `name` of `stage`; it overwrites the symbol `over`, if any.

        Returns the value under that name: `value` itself, or a copy where it has a name that
        matters already.
        """
        if _is_promised(value) or value.producer() is None:
            value = self.editor.named(value, name)
        else:
            self.editor.rename(value, name)
        self.editor.model.graph.outputs.append(value)
        self.stages[name] = stage
        if over is not None:
            self.updates[name] = over
        return value

    def overwrite(self, new: Term, old: ir.Value, word: str, stage: SectionType) -> ir.Value:
        """Make `new` the output `<old>__<word>` of `stage`, which overwrites the state `old`."""
        value = self.stored(new, old)
        return self.output(value, f"{old.name}__{word}", stage, over=str(old.name))

    def publish(self, number: Term, name: str, stage: SectionType, dtype: ir.DataType) -> None:
        """Make the scalar `number` an output of `stage` that the user sees, as `dtype`."""
        self.output(number.cast(dtype).value, name, stage)
        self.public.append(name)

    def symbol(self, value: ir.Value) -> str:
        """Return the name of the memory that `value` is in."""
        name = str(value.name)
        while name in self.updates:
            name = self.updates[name]
        return name

    def stored(self, term: Term, like: ir.Value) -> ir.Value:
        """Return the value of `term` in the element type of `like`."""
        assert like.dtype is not None
        return term.cast(like.dtype).value


def _is_promised(value: ir.Value) -> bool:
    return value.is_graph_output()
