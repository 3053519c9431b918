"""Section programs as a PEF stores them, read back with nothing believed about them.

What a PEF does not hold of them is found as the compiler found it. Types and sizes of the values
inside follow from those of the ports, and what operators keep on chip follows from sizes. Both are
asked of the compiler's own functions, on the stored graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from pef.errors import PefError
from pef.foreign import reading, why
from pef.program import Program, Section, SectionProgram
from pef.symbols import Shape, Symbol
from sambac.errors import InternalError
from sambac.graph.protos import subgraphs
from sambac.graph.value_types import infer_results
from sambac.graph.value_types import parse as parse_type
from sambac.ops import held_whole, keepable
from sambac.passes.legalize.infer_shapes import ask_runtime, infer
from sambac.planning.from_model import value_facts
from sambac.planning.view import ValueFacts, ValueRole


@dataclass(frozen=True, slots=True)
class StoredNode:
    """A node of a section program, values by their formal names.

    `reads` are the values it reads in first-use order without repetition, what its subgraphs
    capture included and literals left out; `makes` those it defines.
    """

    op_type: str
    domain: str
    reads: tuple[str, ...]
    makes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredGraph:
    """The nodes of a section program in their order, and what is wrong with it, in sentences."""

    nodes: tuple[StoredNode, ...]
    problems: tuple[str, ...]


def portable_program(program: Program, section: Section) -> int | None:
    """Return the first program of `section` that runs on every host, whatever argins are."""
    always = (each for each in section.variants if not (each.zeros or each.nonzeros))
    numbers = (variant.program for variant in always)
    return next((number for number in numbers if not program.programs[number].requires), None)


def parse(content: bytes | memoryview) -> onnx.ModelProto | None:
    """Return a stored program; None if it is no ONNX model."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(bytes(content))
    except DecodeError:
        return None
    return model


def read_graph(program: Program, number: int) -> StoredGraph:
    """Return the graph of program `number`, whose bytes must be in the segments of `program`."""
    stored, who = program.programs[number], f"program {number}"
    model = parse(program.segments[stored.graph.segment].content(stored.graph))
    if model is None:
        return StoredGraph((), (f"{who} is no ONNX model",))
    nodes = tuple(_nodes(model.graph))
    return StoredGraph(nodes, (*_ports(who, stored, model.graph), *_order(who, stored, nodes)))


def _nodes(graph: onnx.GraphProto) -> Iterator[StoredNode]:
    literals = _constants(graph)
    for node in graph.node:
        reads = dict.fromkeys(name for name in _reads(node) if name not in literals)
        makes = tuple(name for name in node.output if name)
        yield StoredNode(node.op_type, node.domain, tuple(reads), makes)


def _constants(graph: onnx.GraphProto) -> set[str]:
    dense = {tensor.name for tensor in graph.initializer}
    return dense | {tensor.values.name for tensor in graph.sparse_initializer}


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yield what `node` and its subgraphs take from outside."""
    yield from (name for name in node.input if name)
    for graph in subgraphs(node):
        inner = {"", *(value.name for value in graph.input), *_constants(graph)}
        for child in graph.node:
            yield from (name for name in _reads(child) if name not in inner)
            inner.update(child.output)
        yield from (value.name for value in graph.output if value.name not in inner)


def _ports(who: str, stored: SectionProgram, graph: onnx.GraphProto) -> Iterator[str]:
    """Compare the signature of a graph with what the file says of it."""
    for way, said, values in (
        ("inputs", stored.inputs, graph.input),
        ("outputs", stored.outputs, graph.output),
    ):
        found = tuple(value.name for value in values)
        if found != said:
            yield f"{who} is said to have the {way} {said}, its graph has {found}"


def _order(who: str, stored: SectionProgram, nodes: tuple[StoredNode, ...]) -> Iterator[str]:
    """Look for values that are read before they are made, or made twice."""
    known = {*stored.inputs, *stored.weights}
    for position, node in enumerate(nodes):
        where = f"node {position} of {who} ({node.op_type})"
        yield from (
            f"{where} reads '{name}', which nothing before it makes"
            for name in node.reads
            if name not in known
        )
        for name in node.makes:
            if name in known:
                yield f"{where} makes '{name}', which is there already"
            known.add(name)


@dataclass(frozen=True)
class InferredGraph:
    """Values that a section program makes, by formal name.

    For each node what it `holds`, and of what that is the smallest.
    """

    values: Mapping[str, ValueFacts]
    holds: Sequence[tuple[str, ...]]
    keepable: Sequence[tuple[str, ...]]


class Inference:
    """Infers programs of one file, each once for all sections that bind it to equal weights."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._known: dict[tuple[int, tuple[tuple[str, Shape], ...]], InferredGraph] = {}

    def graph(self, number: int, weights: Sequence[int]) -> InferredGraph:
        """Return what is inferred of program `number`, which reads these symbols as weights.

        Raises `PefError` for a program of which nothing can be inferred.
        """
        symbols = [self._program.symbols[index] for index in weights]
        key = number, tuple((symbol.type, symbol.shape) for symbol in symbols)
        if key not in self._known:

            def refuse(error: Exception) -> PefError:
                return PefError(f"nothing can be inferred of program {number}: {why(error)}")

            with reading(refuse):
                self._known[key] = self._infer(number, symbols)
        return self._known[key]

    def _infer(self, number: int, weights: Sequence[Symbol]) -> InferredGraph:
        stored = self._program.programs[number]
        proto = parse(self._program.segments[stored.graph.segment].content(stored.graph))
        if proto is None:
            raise PefError("it is no ONNX model")
        for name in stored.weights:
            proto.graph.input.add(name=name)
        model = ir.serde.deserialize_model(proto)
        given = {value.name: value for value in model.graph.inputs}
        for name, symbol in zip(stored.weights, weights, strict=True):
            given[name].type = parse_type(symbol.type)
            given[name].shape = None if symbol.shape is None else ir.Shape(symbol.shape)
        infer(model)
        made = [value for node in model.graph for value in node.outputs if value.name]
        if open_ones := [value for value in made if not _is_static(value)]:
            ask_runtime(model, open_ones)
            _follow(model)
        return InferredGraph(
            {
                str(value.name): value_facts(value, str(value.name), ValueRole.ACTIVATION)
                for value in made
            },
            [_names(held_whole(node)) for node in model.graph],
            [_names(keepable(node)) for node in model.graph],
        )


def _names(values: Iterable[ir.Value]) -> tuple[str, ...]:
    return tuple(str(value.name) for value in values)


def _follow(model: ir.Model) -> None:
    """Infer node by node what is still open: onnxruntime does not tell a scalar from no shape."""
    for node in model.graph:
        if node.domain == "" and not all(map(_is_static, node.outputs)):
            with suppress(InternalError):  # what it takes is open as well
                infer_results(node, model.opset_imports)


def _is_static(value: ir.Value) -> bool:
    return value.shape is not None and value.shape.is_static()
