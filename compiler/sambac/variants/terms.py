"""Programs without the terms that are zero, such as momentum: fewer operators, inputs and outputs.

A program for some values of argins is derived from the one for all, by what follows from them. What
it would put out as it came in, a state updated in place, it does not put out at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

import onnx
import onnx_ir as ir
from onnx import numpy_helper

from sambac.facts import StepFacts
from sambac.graph.node_facts import static_shape
from sambac.graph.protos import rename_node
from sambac.planning.plans import Border
from sambac.section_program import FormalProgram

from .knowledge import NONZERO, Known, as_known, passes_on, result, spread
from .layout import reads

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
        self, formal: FormalProgram, border: Border, in_place: Mapping[int, int]
    ) -> Iterator[tuple[Assumed, FormalProgram]]:
        """Yield the programs of a section for some values of argins; `formal` is for all."""
        reaching = {
            name: option
            for name, option in self._options.items()
            if any(not known.keys().isdisjoint(border.inputs) for known in self._alone(name))
        }
        for assumed in assumptions(reaching, self._defaults) if reaching else ():
            known = self._known(assumed)
            made = reduced(formal, [known.get(name) for name in border.inputs], in_place)
            if made is not None:
                yield assumed, made

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


def reduced(
    program: FormalProgram, known: Sequence[Known], in_place: Mapping[int, int]
) -> FormalProgram | None:
    """Return `program` when its inputs are as `known`; None if nothing becomes less.

    `in_place` maps the positions of outputs to those of the inputs that they overwrite. None also
    where an output would have to be a copy of something else: then the program for all is as good.
    """
    model = onnx.ModelProto.FromString(program.graph)
    facts = {**dict(zip(program.inputs, known, strict=True)), **_constants(model.graph)}
    graph = model.graph
    same = _same_values(graph.node, facts, program.values)
    ends = _ends(program, same, in_place, _constants(graph))
    if not same or ends is None:
        return None
    names, outputs = ends
    left = [node for node in graph.node if node.output[0] not in same]
    renamed = {**{name: names.get(source, source) for name, source in same.items()}, **names}
    nodes = [*_needed(left, renamed, outputs)]
    read = {name for node in nodes for name in reads(node)}
    for field, kept in (("input", read), ("initializer", read), ("output", {*outputs})):
        items = [item for item in getattr(graph, field) if item.name in kept]
        graph.ClearField(field)
        getattr(graph, field).extend(items)
    graph.ClearField("node")
    graph.node.extend(nodes)
    return replace(
        program,
        graph=model.SerializeToString(deterministic=True),
        inputs=tuple(name if name in read else "" for name in program.inputs),
        outputs=outputs,
    )


def _constants(graph: onnx.GraphProto) -> dict[str, Known]:
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    return {
        name: as_known(array.item()) if array.size == 1 else None for name, array in arrays.items()
    }


def _same_values(
    nodes: Iterable[onnx.NodeProto], facts: dict[str, Known], values: Mapping[str, ir.Value]
) -> dict[str, str]:
    """Return, for values that are equal to earlier ones, which these are; `facts` grows."""
    same: dict[str, str] = {}
    widened: dict[str, str] = {}
    for node in nodes:
        inputs = [facts.get(name) for name in node.input]
        known = result(node.op_type, inputs)
        if known is not None:
            facts[node.output[0]] = known
        at = passes_on(node.op_type, inputs)
        if node.op_type == "Cast":
            source = same.get(node.input[0], node.input[0])
            if _is_wider(values, node.output[0], source):
                widened[node.output[0]] = source
            elif source in widened and _alike(values, widened[source], node.output[0]):
                same[node.output[0]] = widened[source]
        if at is not None and _alike(values, node.input[at], node.output[0]):
            same[node.output[0]] = same.get(node.input[at], node.input[at])
    return same


def _is_wider(values: Mapping[str, ir.Value], one: str, other: str) -> bool:
    """Tell whether float32 values are those of half precision before a cast."""
    wide, narrow = values.get(one), values.get(other)
    if wide is None or narrow is None:
        return False
    return wide.dtype == ir.DataType.FLOAT and narrow.dtype in _HALF


def _alike(values: Mapping[str, ir.Value], one: str, other: str) -> bool:
    """Tell whether two values have one type, and one shape that is known."""
    first, second = values.get(one), values.get(other)
    if first is None or second is None or first.dtype != second.dtype:
        return False
    return static_shape(first) is not None and static_shape(first) == static_shape(second)


def _ends(
    program: FormalProgram,
    same: Mapping[str, str],
    in_place: Mapping[int, int],
    constants: Collection[str],
) -> tuple[dict[str, str], tuple[str, ...]] | None:
    """Return what values are called that become outputs, and the outputs, empty if left out."""
    fixed = {*program.inputs, *program.weights, *program.outputs, *constants}
    names: dict[str, str] = {}
    outputs = []
    for position, name in enumerate(program.outputs):
        source = same.get(name)
        overwritten = in_place.get(position)
        if source is None:
            outputs.append(name)
        elif overwritten is not None and source == program.inputs[overwritten]:
            outputs.append("")
        elif source in fixed or source in names:
            return None
        else:
            names[source] = name
            outputs.append(name)
    return names, tuple(outputs)


def _needed(
    nodes: Iterable[onnx.NodeProto], names: Mapping[str, str], outputs: Iterable[str]
) -> Iterator[onnx.NodeProto]:
    """Yield the nodes that `outputs` need, with values called by other `names`."""
    kept = []
    wanted = {*filter(None, outputs)}
    for node in reversed([*nodes]):
        rename_node(node, lambda name: names.get(name, name))
        if not wanted.isdisjoint(node.output):
            wanted.update(reads(node))
            kept.append(node)
    return reversed(kept)
