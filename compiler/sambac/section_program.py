"""One section's operators as a stored ONNX graph with formal names.

Formal names depend only on the order of appearance (`i0` an input, `w0` a weight, `o0` an output,
`t0` anything else), node names and annotations are dropped, and so sections that do the same
work have the same bytes and are stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import onnx
import onnx_ir as ir

from .graph.protos import rename_node, subgraphs
from .graph.type_protos import value_info
from .planning.plans import Border

# Graphs before IR version 4 had to list every initializer as an input; ours never do.
_MIN_IR_VERSION = 8


@dataclass(frozen=True, slots=True)
class FormalProgram:
    """The bytes of a ModelProto and its formal names, in the order of the border's values.

    `values` are the typed values behind the formal names of the main graph.
    """

    graph: bytes
    inputs: tuple[str, ...]
    weights: tuple[str, ...]
    outputs: tuple[str, ...]
    values: Mapping[str, ir.Value] = field(compare=False, repr=False)


class _Names:
    """Formal names by actual name, made when a name is first met."""

    def __init__(self, border: Border) -> None:
        self._formal: dict[str, str] = {"": ""}
        for prefix, names in (
            ("i", border.inputs),
            ("w", border.weights),
            ("o", border.outputs),
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

    def items(self) -> Iterable[tuple[str, str]]:
        """Return pairs of actual and formal name."""
        return self._formal.items()

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

    def program(self, border: Border) -> FormalProgram:
        """Cut out the operators of `border` as a graph of their own."""
        names = _Names(border)
        proto = onnx.ModelProto(ir_version=max(self.ir_version, _MIN_IR_VERSION))
        for domain, version in sorted(self.opsets.items()):
            proto.opset_import.add(domain=domain, version=version)
        graph = proto.graph
        graph.name = "section"
        used: dict[str, None] = {}
        for op in border.ops:
            node = graph.node.add()  # to append one copies it, and ensembles of trees are large
            ir.serde.serialize_node_into(node, self.nodes[op])
            _collect_names(node, used)
            _strip(node)
            rename_node(node, names)
        for name in border.inputs:
            graph.input.append(self._value_info(name, names))
        for name in border.outputs:
            graph.output.append(self._value_info(name, names))
        for name in used:
            if name in self.literals:
                tensor = ir.serde.serialize_tensor(self.literals[name])
                tensor.name = names(name)
                tensor.ClearField("doc_string")
                graph.initializer.append(tensor)
        return FormalProgram(
            graph=proto.SerializeToString(deterministic=True),
            inputs=names.all(border.inputs),
            weights=names.all(border.weights),
            outputs=names.all(border.outputs),
            values={
                formal: self.values[name] for name, formal in names.items() if name in self.values
            },
        )

    def _value_info(self, name: str, names: _Names) -> onnx.ValueInfoProto:
        info = value_info(self.values[name])
        info.ClearField("doc_string")
        info.ClearField("metadata_props")
        info.name = names(name)
        return info


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
