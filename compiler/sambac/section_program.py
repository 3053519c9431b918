"""One section's operators as a stored ONNX graph with formal names.

Formal names depend only on the order of appearance (`i0` an input, `w0` a weight, `o0` an output,
`t0` anything else), node names and annotations are dropped, and so sections that do the same
work have the same bytes and are stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from .graph.nodes import subgraphs as subgraphs_of
from .graph.protos import rename_node, subgraphs
from .graph.value_types import value_info
from .planning.plans import LiveSets

# Graphs before IR version 4 had to list every initializer as an input; ours never do.
_MIN_IR_VERSION = 8


@dataclass(frozen=True, slots=True)
class FormalProgram:
    """The bytes of a ModelProto and its formal names, in the order of the live sets.

    A name is empty where a variant does without an input or output.
    """

    graph: bytes
    inputs: tuple[str, ...]
    weights: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class SectionModel:
    """One section's operators as a model of their own, under formal names, for passes to rewrite.

    The graph's inputs are the live-in values and behind them the weights, its initializers the
    literals. `inputs`, `weights` and `outputs` are those of the section, of which passes may take
    some away.
    """

    model: ir.Model
    inputs: tuple[str, ...]
    weights: tuple[str, ...]
    outputs: tuple[str, ...]

    def program(self) -> FormalProgram:
        """Serialise the model as it is now, with the inputs and outputs that it still has."""
        graph = self.model.graph
        proto = _shell(graph.opset_imports, self.model.ir_version or _MIN_IR_VERSION)
        for node in graph:
            _add_node(proto.graph, node)
        given = {str(value.name): value for value in graph.inputs}
        made = {str(value.name): value for value in graph.outputs}
        _add_ports(
            proto.graph.input, ((given[name], name) for name in self.inputs if name in given)
        )
        _add_ports(proto.graph.output, ((value, name) for name, value in made.items()))
        for name, value in graph.initializers.items():
            if value.const_value is not None:
                _add_literal(proto.graph, value.const_value, name)
        return FormalProgram(
            graph=proto.SerializeToString(deterministic=True),
            inputs=tuple(name if name in given else "" for name in self.inputs),
            weights=self.weights,
            outputs=tuple(name if name in made else "" for name in self.outputs),
        )


class _Names:
    """Formal names by actual name, made when a name is first met."""

    def __init__(self, sets: LiveSets) -> None:
        self._formal: dict[str, str] = {"": ""}
        for prefix, names in (
            ("i", sets.live_in),
            ("w", sets.weights),
            ("o", sets.live_out),
        ):
            for index, name in enumerate(names):
                self._formal[name] = f"{prefix}{index}"
        self._fixed = len(self._formal)

    def __call__(self, name: str) -> str:
        """Return the formal name of `name`."""
        formal = self._formal.get(name)
        if formal is None:
            formal = f"t{len(self._formal) - self._fixed}"
            self._formal[name] = formal
        return formal

    def all(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the formal names of `names`."""
        return tuple(self._formal[name] for name in names)


@dataclass(frozen=True)
class SectionSource:
    """What the programs of all sections are cut from.

    `nodes` are the operators of the main graph by name, `values` its values by name, `literals`
    the small constants that are stored inside programs. Names are unique across the whole model,
    subgraphs included, so one table of names serves every scope.
    """

    nodes: Mapping[str, ir.Node]
    values: Mapping[str, ir.Value]
    literals: Mapping[str, ir.TensorProtocol]
    opsets: Mapping[str, int]
    ir_version: int

    @classmethod
    def of(cls, model: ir.Model, is_literal: Callable[[ir.TensorProtocol], bool]) -> SectionSource:
        """Index `model`, which must be in legal form."""
        nodes: dict[str, ir.Node] = {}
        values: dict[str, ir.Value] = {str(value.name): value for value in model.graph.inputs}
        literals: dict[str, ir.TensorProtocol] = {}
        for name, value in model.graph.initializers.items():
            values[name] = value
            if value.const_value is not None and is_literal(value.const_value):
                literals[name] = value.const_value
        for node in model.graph:
            nodes[str(node.name)] = node
            values.update((str(value.name), value) for value in node.outputs)
        return cls(nodes, values, literals, dict(model.opset_imports), model.ir_version)

    def program(self, sets: LiveSets) -> FormalProgram:
        """Cut out the operators of `sets` as a graph of their own, and serialise it."""
        names = _Names(sets)
        proto = _shell(self.opsets, max(self.ir_version, _MIN_IR_VERSION))
        used: dict[str, None] = {}
        for op in sets.ops:
            node = _add_node(proto.graph, self.nodes[op])
            _collect_names(node, used)
            rename_node(node, names)
        for ports, crossing in (
            (proto.graph.input, sets.live_in),
            (proto.graph.output, sets.live_out),
        ):
            _add_ports(ports, ((self.values[name], names(name)) for name in crossing))
        for name in used:
            if name in self.literals:
                _add_literal(proto.graph, self.literals[name], names(name))
        return FormalProgram(
            graph=proto.SerializeToString(deterministic=True),
            inputs=names.all(sets.live_in),
            weights=names.all(sets.weights),
            outputs=names.all(sets.live_out),
        )

    def model(self, sets: LiveSets) -> SectionModel:
        """Copy the operators of `sets` as a model, whose `program` is that of `sets`."""
        nodes = [self.nodes[op] for op in sets.ops]
        read = dict.fromkeys(name for node in nodes for name in _reads(node))
        view = ir.GraphView(
            [self.values[name] for name in (*sets.live_in, *sets.weights)],
            [self.values[name] for name in sets.live_out],
            nodes=nodes,
            initializers=[self.values[name] for name in read if name in self.literals],
            opset_imports=dict(self.opsets),
            name="section",
        )
        graph, names = view.clone(), _Names(sets)
        for value in graph.inputs:
            value.const_value = None  # of a weight: nothing here depends on its content
        seen: set[ir.Value] = set()
        for value in (*graph.inputs, *_met(graph)):
            if value not in seen:
                seen.add(value)
                _call(value, names(value.name or ""))
        return SectionModel(
            ir.Model(graph, ir_version=max(self.ir_version, _MIN_IR_VERSION)),
            inputs=names.all(sets.live_in),
            weights=names.all(sets.weights),
            outputs=names.all(sets.live_out),
        )


def _reads(node: ir.Node) -> Iterator[str]:
    """Yield every name that `node` or its subgraphs read, in the order of `_collect_names`."""
    yield from (str(value.name) for value in node.inputs if value is not None)
    for graph in subgraphs_of(node):
        yield from (str(value.name) for value in graph.outputs)
        for inner in graph:
            yield from _reads(inner)


def _met(graph: Iterable[ir.Node]) -> Iterator[ir.Value]:
    """Yield the values that `rename_node` meets in serialised nodes, in its order."""
    for node in graph:
        yield from (value for value in node.inputs if value is not None)
        yield from node.outputs
        for inner in subgraphs_of(node):
            yield from (*inner.inputs, *inner.initializers.values())
            yield from _met(inner)
            yield from inner.outputs


def _call(value: ir.Value, name: str) -> None:
    """Rename `value`, but not the tensor that it may hold: that is the whole model's."""
    tensor, value.const_value = value.const_value, None
    value.name = name
    value.const_value = tensor


def _shell(opsets: Mapping[str, int], ir_version: int) -> onnx.ModelProto:
    """Return a model with an empty graph."""
    proto = onnx.ModelProto(ir_version=ir_version)
    for domain, version in sorted(opsets.items()):
        proto.opset_import.add(domain=domain, version=version)
    proto.graph.name = "section"
    return proto


def _add_node(graph: onnx.GraphProto, node: ir.Node) -> onnx.NodeProto:
    """Add a node without what is only annotated."""
    # To append one copies it, and ensembles of trees are large.
    proto: onnx.NodeProto = graph.node.add()
    ir.serde.serialize_node_into(proto, node)
    _strip(proto)
    return proto


def _add_ports(
    ports: MutableSequence[onnx.ValueInfoProto], values: Iterable[tuple[ir.Value, str]]
) -> None:
    """Add inputs or outputs, each under the name beside it."""
    for value, name in values:
        info = value_info(value)
        info.ClearField("doc_string")
        info.ClearField("metadata_props")
        info.name = name
        ports.append(info)


def _add_literal(graph: onnx.GraphProto, content: ir.TensorProtocol, name: str) -> None:
    tensor = ir.serde.serialize_tensor(content)
    tensor.name = name
    tensor.ClearField("doc_string")
    graph.initializer.append(tensor)


def _collect_names(node: onnx.NodeProto, used: dict[str, None]) -> None:
    """Add every name that `node` or its subgraphs read to `used`."""
    used.update(dict.fromkeys(node.input))
    for graph in subgraphs(node):
        used.update(dict.fromkeys(value.name for value in graph.output))
        for inner in graph.node:
            _collect_names(inner, used)


def _strip(node: onnx.NodeProto) -> None:
    """Drop the name of `node`, and all that is only annotated, inside its subgraphs too."""
    node.name = ""
    node.ClearField("doc_string")
    node.ClearField("metadata_props")
    for attribute in node.attribute:
        attribute.ClearField("doc_string")
    for graph in subgraphs(node):
        graph.name = "body"
        for annotation in ("value_info", "doc_string", "metadata_props", "quantization_annotation"):
            graph.ClearField(annotation)
        for inner in graph.node:
            _strip(inner)
