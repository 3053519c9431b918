"""Shapes that every step of a Loop keeps.

The ONNX library says nothing of the shape of what a Loop hands from step to step, as each step may
give it another. Where a step gives a state the shape that it gets, states have one for good: that
of what the Loop begins with. That is assumed of all states, and what turns out otherwise is given
up (sizes first, then ranks), until nothing contradicts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx
from onnx import TensorShapeProto

from pef.foreign import reading

from .protos import subgraphs

_MOST_ATTEMPTS = 16
_BEFORE_STATES = 2  # the count of steps and the condition
_GIVEN_BEFORE = 1  # the condition


class _UninferableError(Exception):
    """The ONNX library objects to what is tried."""


@dataclass(frozen=True)
class _LoopState:
    """What a Loop hands on, in the graph that holds it: as it begins, in the body, and behind."""

    holder: onnx.GraphProto
    begins: str
    taken: onnx.ValueInfoProto
    given: str
    result: str


def keep_loop_states(proto: onnx.ModelProto) -> bool:
    """Declare in `proto` the shapes that states of loops keep; return whether there are any.

    Declared are inputs of bodies and results of loops. Bodies that declare a shape keep that.
    """
    if not any(True for _ in _open_states(proto.graph)):
        return False
    trial = onnx.ModelProto.FromString(proto.SerializeToString())
    kept = _kept(trial, [*_open_states(trial.graph)])
    for state, shape in zip([*_open_states(proto.graph)], kept, strict=True):
        _declare(state, shape)
    return any(shape is not None for shape in kept)


def _open_states(graph: onnx.GraphProto) -> Iterator[_LoopState]:
    """Yield the states of all loops whose bodies declare no shape of them, outer loops first."""
    for node in graph.node:
        for body in subgraphs(node):
            if node.op_type == "Loop" and node.domain == "":
                yield from _states_of(graph, node, body)
            yield from _open_states(body)


def _states_of(
    graph: onnx.GraphProto, node: onnx.NodeProto, body: onnx.GraphProto
) -> Iterator[_LoopState]:
    begins, taken = node.input[_BEFORE_STATES:], body.input[_BEFORE_STATES:]
    given = body.output[_GIVEN_BEFORE:]
    for name, value, end, result in zip(begins, taken, given, node.output, strict=False):
        # To clear a field of a type that is no tensor's would make it one.
        is_tensor = value.type.HasField("tensor_type")
        if is_tensor and not value.type.tensor_type.HasField("shape"):
            yield _LoopState(graph, name, value, end.name, result)


def _kept(trial: onnx.ModelProto, states: list[_LoopState]) -> list[TensorShapeProto | None]:
    """Return the shape that each state keeps; None where it may become another."""
    nothing: list[TensorShapeProto | None] = [None for _ in states]
    shapes, given_up = [*nothing], [False for _ in states]
    for _ in range(_MOST_ATTEMPTS):
        found = _shapes(trial)
        if found is None:
            return nothing
        changed = False
        for at, state in enumerate(states):
            begun, ends = found.get(state.begins), found.get(state.given)
            known = shapes[at]
            wanted = None if given_up[at] else begun
            if known is not None:
                wanted = _common(_common(known, begun), ends)
                given_up[at] = wanted is None
            if wanted != known:
                changed, shapes[at] = True, wanted
                _declare(state, wanted)
        if not changed:
            return shapes
    return nothing


def _common(
    one: TensorShapeProto | None, other: TensorShapeProto | None
) -> TensorShapeProto | None:
    """Return the shape with the sizes in which both agree, None where their ranks differ."""
    if one is None or other is None or len(one.dim) != len(other.dim):
        return None
    shape = TensorShapeProto()
    for first, second in zip(one.dim, other.dim, strict=True):
        size = shape.dim.add()
        if first == second:
            size.CopyFrom(first)
    return shape


def _declare(state: _LoopState, shape: TensorShapeProto | None) -> None:
    """Let the body take a shape, and the Loop give it; None for no shape."""
    outputs = [value for value in state.holder.output if value.name == state.result]
    infos = [value for value in state.holder.value_info if value.name == state.result]
    for value in (state.taken, *outputs, *infos):
        value.type.tensor_type.ClearField("shape")
    if shape is None:
        return
    state.taken.type.tensor_type.shape.CopyFrom(shape)
    if state.result:
        for value in outputs or infos or [state.holder.value_info.add(name=state.result)]:
            value.type.tensor_type.elem_type = state.taken.type.tensor_type.elem_type
            value.type.tensor_type.shape.CopyFrom(shape)


def _shapes(trial: onnx.ModelProto) -> dict[str, TensorShapeProto] | None:
    """Infer the shapes of all values by name, without those of names that stand for two values."""
    try:
        with reading(_UninferableError):
            found = onnx.shape_inference.infer_shapes(trial)
    except _UninferableError:
        return None
    shapes: dict[str, TensorShapeProto] = {}
    twice: set[str] = set()
    _collect(found.graph, shapes, twice)
    return {name: shape for name, shape in shapes.items() if name not in twice}


def _collect(graph: onnx.GraphProto, shapes: dict[str, TensorShapeProto], twice: set[str]) -> None:
    own: dict[str, TensorShapeProto] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.HasField("shape"):
            own[value.name] = value.type.tensor_type.shape
    for tensor in graph.initializer:
        own[tensor.name] = TensorShapeProto(
            dim=[TensorShapeProto.Dimension(dim_value=size) for size in tensor.dims]
        )
    twice.update(shapes.keys() & own.keys())
    shapes.update(own)
    for node in graph.node:
        for inner in subgraphs(node):
            _collect(inner, shapes, twice)
