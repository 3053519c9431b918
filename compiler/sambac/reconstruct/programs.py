"""Section programs as a PEF stores them, read back with nothing believed about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from pef.program import Program, Section, SectionProgram
from sambac.graph.protos import subgraphs


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
