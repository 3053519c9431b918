"""The graphs of a training program: the step while it grows, and what tells it from the evaluation.

A training step and an evaluation stand over the same states, whose names they share. Everything
else of the evaluation is called `eval/...`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from pef.program import GraphRole, SectionType
from pef.states import EVAL_GRAPH, TRAIN_GRAPH
from pef.symbols import SymbolKind
from sambac.facts import Hyperparameter, Pack, State, StepFacts
from sambac.graph.editor import Editor
from sambac.graph.nodes import all_nodes
from sambac.planning.plans import NamedModel

from .packs import in_rows
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
        self.argins: list[Hyperparameter] = []
        self.terms: dict[str, str] = {}
        self.packs: list[Pack] = []
        self.public: list[str] = []

    def state(self, name: str, dtype: ir.DataType, shape: Sequence[int], state: State) -> ir.Value:
        """Add an input that holds `state`."""
        self.states[name] = state
        return self.editor.input(name, dtype, shape)

    def argin(self, group: str, option: str, default: float) -> Term:
        """Return the `option` of `group`, a float64 scalar, which is added when first asked for."""
        name = f"{group}.{option}" if group else option

        def make() -> ir.Value:
            content = ir.Tensor(np.asarray(default, np.float64), name=name)
            self.argins.append(Hyperparameter(name, name, group, option))
            return self.state(name, ir.DataType.DOUBLE, (), State(SymbolKind.ARGIN, content))

        return self.once(("argin", name), make)

    def term(self, value: ir.Value) -> Term:
        """Return `value` as a term of this graph."""
        return Term.of(self.editor, value)

    def once(self, key: tuple[object, ...], make: Callable[[], ir.Value]) -> Term:
        """Return what `make` made when it was first called for `key`."""
        return Term(self.editor, self.editor.point.once(key, make))

    def pack(self, pack: Pack, like: ir.Value) -> ir.Value:
        """Add the input that spans the members of `pack`, of the element type of `like`.

        It has the shape in which its kind of vector is laid out: `packs.in_rows`.
        """
        self.packs.append(pack)
        assert like.dtype is not None
        shape = in_rows(pack.size, like.dtype.numpy().itemsize)
        return self.editor.input(pack.name, like.dtype, shape)

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


@dataclass(frozen=True)
class StepGraphs:
    """A training step and an evaluation as two graphs over the same states.

    `public` and `evaluated` map the outputs that a user knows to the values behind them, in the
    training and in the evaluation graph. `defaults` are of inputs that may be left out.
    """

    model: ir.Model
    evaluation: ir.Model
    facts: StepFacts
    public: Mapping[str, str]
    evaluated: Mapping[str, str]
    defaults: Mapping[str, ir.TensorProtocol]
    warnings: tuple[str, ...]

    def graphs(self) -> tuple[NamedModel, NamedModel]:
        """Return the two graphs under their names, with no name of a value in common but inputs."""
        hidden = {*self.facts.states, *self.facts.masks, *(p.name for p in self.facts.packs)}
        renamed = _set_apart(self.evaluation, self.model)
        return (
            NamedModel(
                TRAIN_GRAPH,
                self.model,
                _inputs(self.model, hidden),
                self.public,
                role=GraphRole.TRAIN,
            ),
            NamedModel(
                EVAL_GRAPH,
                self.evaluation,
                _inputs(self.evaluation, hidden),
                {name: renamed.get(value, value) for name, value in self.evaluated.items()},
                role=GraphRole.EVAL,
            ),
        )


def _inputs(model: ir.Model, hidden: set[str]) -> dict[str, str]:
    names = (str(value.name) for value in model.graph.inputs)
    return {name: name for name in names if name not in hidden}


def _set_apart(evaluation: ir.Model, model: ir.Model) -> dict[str, str]:
    """Rename nodes and values of `evaluation`; return the new names of values by the old ones.

    Inputs keep their names, and so do constants that are the same in `model`.
    """
    renamed: dict[str, str] = {}
    constants = model.graph.initializers
    for value in tuple(evaluation.graph.initializers.values()):
        twin = constants.get(str(value.name))
        if twin is None or not _same(twin.const_value, value.const_value):
            _rename(value, renamed)
    for node in all_nodes(evaluation.graph):
        node.name = f"eval/{node.name}"
        for value in node.outputs:
            if value.name:
                _rename(value, renamed)
    return renamed


def _rename(value: ir.Value, renamed: dict[str, str]) -> None:
    name = f"eval/{value.name}"
    renamed[str(value.name)] = name
    value.name = name


def _same(one: ir.TensorProtocol | None, other: ir.TensorProtocol | None) -> bool:
    if one is None or other is None or (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    return one is other or one.tobytes() == other.tobytes()
