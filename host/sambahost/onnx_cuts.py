"""ONNX models that train, cut at operators: each piece is a model with the same weights.

What only constants and sizes say is in each piece that reads it: a size that came from another
chip would be one that no compiler knows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .cut_places import led_by, places_of
from .errors import HostError
from .onnx_part import OnnxPart

if TYPE_CHECKING:
    import onnx

_WEIGHTS_ARE_NO_INPUTS = 4
"""The first IR version in which they need not be."""
_SIZES = ("Shape", "Size")
_FLOATS = (1, 10, 11, 16)
"""What ONNX calls float, float16, double and bfloat16."""


def cut_model(part: OnnxPart, inputs: int, breaks: Sequence[str]) -> Sequence[OnnxPart]:
    """Return the pieces of a model: the first operator of each of `breaks` begins one.

    That is a pattern for the name of an operator, or of what it gives. The first `inputs` of the
    model go to the first piece, targets to the last. Raises `HostError` where two pieces would move
    the same statistics, or where nothing says of which type a tensor is that goes from one to the
    next.
    """
    from sambac.training.parameters import untied  # loads the compiler

    whole = _whole(untied(part.model), part, inputs)
    places = _places(whole, breaks)
    count = 1 + max((places[at] for at in whole.own), default=0)
    if count == 1:
        return [part]
    inside = [_inside(whole, places, at, at == count - 1) for at in range(count)]
    needed = [_needed(whole, each, at == count - 1) for at, each in enumerate(inside)]
    homes = _homes(whole, places, needed)
    crossing = [
        [name for name, home in homes.items() if home < at and any(name in n for n in needed[at:])]
        for at in range(1, count)
    ]
    enters = [[*whole.inputs[:inputs]], *crossing]
    enters[-1] = [*enters[-1], *whole.targets]
    gives = [*crossing, whole.outputs]
    models = [_model(whole, *each) for each in zip(inside, enters, gives, strict=True)]
    return [OnnxPart(model, (), part) for model in models]


@dataclass(frozen=True)
class _Whole:
    """A model: what operators read, by their numbers, and which are in each piece that reads them.

    `states` are the weights that become inputs of a step, and whether each has a gradient.
    """

    model: onnx.ModelProto
    reads: Sequence[Collection[str]]
    makers: Mapping[str, int]
    copied: Collection[int]
    inputs: Sequence[str]
    targets: Sequence[str]
    states: Mapping[str, bool]
    buffers: Collection[str]
    types: Mapping[str, onnx.TypeProto]

    @property
    def own(self) -> Iterator[int]:
        """The operators that are in one piece."""
        return (at for at in range(len(self.reads)) if at not in self.copied)

    @property
    def outputs(self) -> Sequence[str]:
        """What the model gives."""
        return [port.name for port in self.model.graph.output]


def _whole(model: onnx.ModelProto, part: OnnxPart, inputs: int) -> _Whole:
    from onnx_ir import from_proto  # here: whoever has such a model has imported it

    from sambac.ops import is_random  # loads the compiler

    buffers = dict.fromkeys((name for name, _ in part.named_buffers()), False)
    states = {name: item.requires_grad for name, item in part.named_parameters()} | buffers
    nodes = model.graph.node
    reads = [tuple(_read(node)) for node in nodes]
    random = [node.op_type == "Dropout" or is_random(node) for node in from_proto(model).graph]
    varies = {*part.inputs, *states}
    copied = set()
    for at, node in enumerate(nodes):
        if not random[at] and (node.op_type in _SIZES or varies.isdisjoint(reads[at])):
            copied.add(at)
        else:
            varies.update(node.output)
    makers = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    return _Whole(
        model=model,
        reads=reads,
        makers=makers,
        copied=copied,
        inputs=part.inputs,
        targets=part.inputs[inputs:],
        states=states,
        buffers=buffers,
        types=_types(model),
    )


def _types(model: onnx.ModelProto) -> Mapping[str, onnx.TypeProto]:
    """Return the types of values as far as they are known, of those of operators no shapes."""
    from onnx import helper, shape_inference  # here: whoever has such a model has imported it

    graph = shape_inference.infer_shapes(model).graph
    found = {
        item.name: helper.make_tensor_type_proto(item.data_type, None) for item in graph.initializer
    }
    for info in graph.value_info:
        kind = info.type.tensor_type.elem_type
        found[info.name] = helper.make_tensor_type_proto(kind, None)
    return found | {port.name: port.type for port in (*graph.input, *graph.output)}


def _read(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that an operator reads, those that its bodies take from outside too."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for body in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else ())):
            for inner in body.node:
                yield from _read(inner)
            yield from (port.name for port in body.output)


def _places(whole: _Whole, breaks: Sequence[str]) -> Mapping[int | str, int]:
    """Return which piece each operator is in, and each input."""
    patterns = [re.compile(pattern) for pattern in breaks]
    begin = {at for pattern in patterns for at in _first(whole, pattern)}
    starts: dict[int | str, int] = {at: n for n, at in enumerate(sorted(begin), start=1)}
    starts |= dict.fromkeys(whole.targets, len(begin))
    reads: dict[int | str, Sequence[int | str]] = {**dict.fromkeys(whole.inputs, ())}
    for at, names in enumerate(whole.reads):
        reads[at] = [whole.makers.get(name, name) for name in names]
    places = places_of(reads, starts, [*whole.own])
    floats = (p.name for p in whole.model.graph.input if p.type.tensor_type.elem_type in _FLOATS)
    trained = (at for at in whole.own if any(whole.states.get(name) for name in whole.reads[at]))
    given = {*whole.inputs}.difference(whole.targets).intersection(floats)
    return led_by(places, [places[each] for group in (given, trained) for each in group])


def _first(whole: _Whole, pattern: re.Pattern[str]) -> list[int]:
    """Return the first operator that `pattern` means, none if there is none."""
    for at in whole.own:
        node = whole.model.graph.node[at]
        if any(map(pattern.fullmatch, (node.name, *node.output))):
            return [at]
    return []


def _inside(
    whole: _Whole, places: Mapping[int | str, int], piece: int, is_last: bool
) -> Collection[int]:
    """Return the operators of a piece: its own, and copies of those that they read."""
    found = {at for at in whole.own if places[at] == piece}
    names = [name for at in found for name in whole.reads[at]] + [*whole.outputs] * is_last
    while names:
        at = whole.makers.get(names.pop(), -1)
        if at in whole.copied and at not in found:
            found.add(at)
            names += whole.reads[at]
    return found


def _needed(whole: _Whole, inside: Collection[int], is_last: bool) -> Collection[str]:
    """Return what a piece reads, or gives at the end, that none of its operators makes."""
    names = {name for at in inside for name in whole.reads[at]}
    names.update(whole.outputs if is_last else ())
    return {name for name in names if whole.makers.get(name) not in inside}


def _homes(
    whole: _Whole, places: Mapping[int | str, int], needed: Sequence[Collection[str]]
) -> Mapping[str, int]:
    """Return in which piece each value is first. Raises `HostError` for statistics of several."""
    homes = {name: places[name] for name in whole.inputs}
    for name in whole.states:
        readers = [at for at, names in enumerate(needed) if name in names]
        homes[name] = min(readers, default=0)
        if name in whole.buffers and len(readers) > 1:
            raise HostError(
                f"the statistics '{name}' are read on both sides of a chip break, where each chip "
                "would move its own; put the break elsewhere"
            )
    makers = whole.makers.items()
    return homes | {name: places[at] for name, at in makers if at not in whole.copied}


def _model(
    whole: _Whole, inside: Collection[int], enters: Sequence[str], gives: Sequence[str]
) -> onnx.ModelProto:
    """Return the model of the operators `inside`, with what `enters` it and what it `gives`."""
    import onnx  # here: whoever has such a model has imported it

    graph = whole.model.graph
    found = onnx.ModelProto(
        ir_version=max(whole.model.ir_version, _WEIGHTS_ARE_NO_INPUTS),
        opset_import=whole.model.opset_import,
        functions=whole.model.functions,
    )
    found.graph.name = graph.name
    found.graph.node.extend(graph.node[at] for at in sorted(inside))
    made = {name for at in inside for name in graph.node[at].output}
    names = {name: name if name in made else f"{name}__passed" for name in gives}
    for name, spelled in names.items():
        if spelled != name:
            found.graph.node.append(onnx.helper.make_node("Identity", [name], [spelled]))
    found.graph.input.extend(_port(whole, name, name) for name in enters)
    found.graph.output.extend(_port(whole, name, names[name]) for name in gives)
    here = {name for at in inside for name in whole.reads[at]}.union(gives).difference(enters)
    found.graph.initializer.extend(item for item in graph.initializer if item.name in here)
    found.graph.value_info.extend(info for info in graph.value_info if info.name in made)
    return found


def _port(whole: _Whole, name: str, spelled: str) -> onnx.ValueInfoProto:
    """Return how an input or output of a piece is declared."""
    import onnx  # here: whoever has such a model has imported it

    declared = onnx.ValueInfoProto(name=spelled)
    if name in whole.types:
        declared.type.CopyFrom(whole.types[name])
    kind = declared.type.tensor_type
    if not kind.elem_type:
        raise HostError(
            f"'{name}' goes from one chip to the next, and nothing says of which type it is; put "
            "the chip break elsewhere"
        )
    return declared
