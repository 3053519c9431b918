"""Programs without the terms that are zero, such as momentum: fewer operators, inputs and outputs.

A program for some values of argins is the one for all, rewritten by what follows from them. What it
would put out as it came in, a state updated in place, it does not put out at all.

Knowledge of a value is a number that all its elements are, a truth value, or `NONZERO`. Two tables
say what follows from it: `result` what an operator makes, `passes_on` which input it passes on
unchanged. That 0 * x is 0 and x + 0 * y is x is meant by a term that is left out, whatever y holds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import onnx_ir as ir

from sambac.facts import StepFacts
from sambac.graph.nodes import static_shape
from sambac.passes.base import Pass
from sambac.passes.rewriting import used
from sambac.planning.plans import LiveSets
from sambac.section_program import SectionModel, SectionSource

_HALF = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
Assumed = Mapping[str, bool]
"""Whether argins are zero, by the graph inputs that hold them."""


class Terms:
    """The terms of a graph that have programs of their own while they are zero."""

    def __init__(self, model: ir.Model, facts: StepFacts) -> None:
        self._model = model
        self._options = facts.terms
        self._defaults = {name: _default(facts, name) for name in facts.terms}
        self._spread: dict[tuple[tuple[str, bool], ...], dict[str, Known]] = {}

    def programs(
        self, source: SectionSource, sets: LiveSets, in_place: Mapping[int, int]
    ) -> Iterator[tuple[Assumed, SectionModel]]:
        """Yield what a section is for some values of argins.

        `in_place` maps the positions of outputs to those of the inputs that they overwrite.
        """
        reaching = {
            name: option
            for name, option in self._options.items()
            if any(not known.keys().isdisjoint(sets.live_in) for known in self._alone(name))
        }
        section = None
        for assumed in assumptions(reaching, self._defaults) if reaching else ():
            known = self._known(assumed)
            less = LeaveOut(tuple(known.get(name) for name in sets.live_in), in_place)
            section = section or source.model(sets)
            if less(section.model).modified:
                yield assumed, section
                section = None

    def _alone(self, name: str) -> Iterator[dict[str, Known]]:
        """Yield what is known when nothing else is known than about one argin."""
        yield self._known({name: True})
        yield self._known({name: False})

    def _known(self, assumed: Assumed) -> dict[str, Known]:
        key = tuple(assumed.items())
        if key not in self._spread:
            given = {name: 0.0 if zero else NONZERO for name, zero in assumed.items()}
            self._spread[key] = spread(self._model, given)
        return self._spread[key]


def _default(facts: StepFacts, name: str) -> float:
    content = facts.states[name].content
    assert content is not None
    return float(content.numpy())


def assumptions(options: Mapping[str, str], defaults: Mapping[str, float]) -> list[Assumed]:
    """Return the values of argins that programs are made for.

    `options` are what the argins are called in an optimizer: those of one name are all zero, or
    all not. Where `defaults`, their values when compiling, are a mixture, that is one more.
    """
    names = dict.fromkeys(options.values())
    found: list[Assumed] = []
    for zero in product((True, False), repeat=len(names)):
        chosen = dict(zip(names, zero, strict=True))
        found.append({argin: chosen[option] for argin, option in options.items()})
    compiled = {argin: defaults[argin] == 0 for argin in options}
    return found if compiled in found else [compiled, *found]


@dataclass(frozen=True)
class LeaveOut(Pass):
    """Leave out what does nothing when the first inputs are as `known`.

    `over` maps the positions of outputs to those of the inputs that they overwrite. Nothing is
    changed where an output would have to be a copy of something else: then the program for all is
    as good.
    """

    name: ClassVar[str] = "leave_out"
    known: Sequence[Known]
    over: Mapping[int, int]

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite `model`, whose operators stand in the order in which they can run."""
        graph = model.graph
        given = zip(graph.inputs, self.known, strict=False)  # weights follow
        same = _same_values(graph, {**dict(given), **_constants(graph)})
        ends = self._ends(graph, same)
        if not same or ends is None:
            return ir.passes.PassResult(model, modified=False)
        for old, new in zip(graph.outputs, ends, strict=True):
            if new is not None and new is not old:
                old.name, new.name = None, old.name
        graph.outputs.clear()
        graph.outputs.extend(value for value in ends if value is not None)
        for value, source in same.items():
            value.replace_all_uses_with(source)
        _remove_unread(graph)
        return ir.passes.PassResult(model, modified=True)

    def _ends(
        self, graph: ir.Graph, same: Mapping[ir.Value, ir.Value]
    ) -> list[ir.Value | None] | None:
        """Return what becomes of each output: another value, or None where it is left out."""
        ends: list[ir.Value | None] = []
        for position, value in enumerate(graph.outputs):
            source, overwritten = same.get(value), self.over.get(position)
            if source is None:
                ends.append(value)
            elif overwritten is not None and source is graph.inputs[overwritten]:
                ends.append(None)
            elif source.producer() is None or source.is_graph_output() or source in ends:
                return None
            else:
                ends.append(source)
        return ends


def _constants(graph: ir.Graph) -> dict[ir.Value, Known]:
    """Return what is known of the constants of one element."""
    tensors = {value: value.const_value for value in graph.initializers.values()}
    return {
        value: as_known(tensor.numpy().item())
        for value, tensor in tensors.items()
        if tensor is not None and tensor.size == 1
    }


def _same_values(graph: ir.Graph, facts: dict[ir.Value, Known]) -> dict[ir.Value, ir.Value]:
    """Return, for values that are equal to earlier ones, which these are; `facts` grows."""
    same: dict[ir.Value, ir.Value] = {}
    widened: dict[ir.Value, ir.Value] = {}
    for node in graph:
        made = node.outputs[0]
        inputs = [None if value is None else facts.get(value) for value in node.inputs]
        known = result(node.op_type, inputs)
        if known is not None:
            facts[made] = known
        at = passes_on(node.op_type, inputs)
        equal = node.inputs[at] if at is not None else None
        if node.op_type == "Cast" and node.inputs[0] is not None:
            source = same.get(node.inputs[0], node.inputs[0])
            if _is_wider(made, source):
                widened[made] = source
            elif source in widened and _alike(widened[source], made):
                same[made] = widened[source]
        if equal is not None and _alike(equal, made):
            same[made] = same.get(equal, equal)
    return same


def _is_wider(wide: ir.Value, narrow: ir.Value) -> bool:
    """Tell whether float32 values are those of half precision before a cast."""
    return wide.dtype == ir.DataType.FLOAT and narrow.dtype in _HALF


def _alike(first: ir.Value, second: ir.Value) -> bool:
    """Tell whether two values have one type, and one shape that is known."""
    if first.dtype != second.dtype:
        return False
    return static_shape(first) is not None and static_shape(first) == static_shape(second)


def _remove_unread(graph: ir.Graph) -> None:
    """Remove the operators, inputs and constants that no output needs."""
    for node in reversed(tuple(graph)):
        if not used(node.outputs):
            graph.remove(node, safe=True)
    read = [value for value in graph.inputs if value.uses()]
    graph.inputs.clear()
    graph.inputs.extend(read)
    for name in [name for name, value in graph.initializers.items() if not value.uses()]:
        del graph.initializers[name]


class NonZero:
    """A number that is not zero, and of which nothing else is known."""


NONZERO = NonZero()
Known = float | bool | NonZero | None
"""What is known of a value; None is nothing."""

_NUMERIC: Mapping[str, Callable[[float, float], float]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Greater": operator.gt,
    "Equal": operator.eq,
}
_SAME = frozenset({"Reshape", "Expand", "Identity"})


def result(op_type: str, inputs: Sequence[Known]) -> Known:
    """Return what is known of what an operator makes of `inputs`."""
    first = inputs[0] if inputs else None
    if op_type in _SAME:
        return first
    if op_type == "Mul" and any(_is(known, 0) for known in inputs):
        return 0.0
    if op_type == "Equal" and NONZERO in inputs and any(_is(known, 0) for known in inputs):
        return False
    if first is None or isinstance(first, NonZero):
        return None
    if op_type == "Cast":
        return float(first)
    if op_type == "Neg":
        return -first
    if op_type == "Not":
        return not first
    second = inputs[1] if len(inputs) > 1 else None
    if op_type in _NUMERIC and second is not None and not isinstance(second, NonZero):
        return _NUMERIC[op_type](first, second)
    return None


def passes_on(op_type: str, inputs: Sequence[Known]) -> int | None:
    """Return the input whose elements are those of the output, None if there is none."""
    if op_type == "GatedAdd" and _is(inputs[2], 0):
        return 0
    if op_type == "Where" and isinstance(inputs[0], bool):
        return 1 if inputs[0] else 2
    if op_type in ("Add", "Sub") and _is(inputs[1], 0):
        return 0
    if op_type == "Add" and _is(inputs[0], 0):
        return 1
    if op_type in ("Mul", "Div") and _is(inputs[1], 1):
        return 0
    if op_type == "Mul" and _is(inputs[0], 1):
        return 1
    return None


def _is(known: Known, number: float) -> bool:
    return isinstance(known, float) and known == number


def spread(model: ir.Model, given: Mapping[str, Known]) -> dict[str, Known]:
    """Return what is known of values of `model` when inputs of it are as `given`."""
    inputs = [value for value in model.graph.inputs if value.name in given]
    known: dict[ir.Value, Known] = {value: given[str(value.name)] for value in inputs}
    behind = {use.node for value in inputs for use in value.uses()}
    for node in _ordered(model.graph, behind):
        found = result(node.op_type, [_of(value, known) for value in node.inputs])
        if found is not None:
            known[node.outputs[0]] = found
    return {str(value.name): found for value, found in known.items()}


def _ordered(graph: ir.Graph, behind: set[ir.Node]) -> Iterable[ir.Node]:
    """Yield the nodes that may know something, in their order; `behind` grows on the way."""
    for node in graph:
        if node in behind:
            yield node
            behind.update(use.node for value in node.outputs for use in value.uses())


def _of(value: ir.Value | None, known: Mapping[ir.Value, Known]) -> Known:
    if value is None:
        return None
    found = known.get(value)
    if found is None and value.const_value is not None and value.const_value.size == 1:
        return as_known(value.const_value.numpy().item())
    return found


def as_known(number: object) -> Known:
    """Return what a constant with this one element tells."""
    return (
        number
        if isinstance(number, bool)
        else float(number)
        if isinstance(number, (int, float))
        else None
    )
