"""The verifier of legal form: one small function per rule, all of them run after every pass.

Legal form is what legalization establishes and every later pass keeps. A rule yields its
breaches as text. The model is walked once, for all rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from sambac.graph.nodes import all_graphs, first_unmade, own_values, subgraphs


@dataclass(frozen=True, slots=True)
class Walk:
    """A model with its graphs, nodes and values listed; a value appears once per graph."""

    model: ir.Model
    graphs: list[ir.Graph]
    nodes: list[ir.Node]
    values: list[ir.Value]

    @classmethod
    def of(cls, model: ir.Model) -> Walk:
        """Walk `model` with all of its subgraphs."""
        graphs = list(all_graphs(model.graph))
        nodes = [node for graph in graphs for node in graph]
        values = [value for graph in graphs for value in dict.fromkeys(own_values(graph))]
        return cls(model, graphs, nodes, values)


Rule = Callable[[Walk], Iterator[str]]


def check_legal(model: ir.Model) -> list[str]:
    """Return every breach of legal form in `model`, each with the rule and what breaks it."""
    walk = Walk.of(model)
    return [f"{name}: {breach}" for name, rule in RULES.items() for breach in rule(walk)]


def no_functions(walk: Walk) -> Iterator[str]:
    """All functions are inlined."""
    for function in walk.model.functions.values():
        yield f"function '{function.name}'"


def no_constant_nodes(walk: Walk) -> Iterator[str]:
    """Constants are initializers."""
    for node in walk.nodes:
        if node.op_type == "Constant" and node.domain == "":
            yield _spell(node)


def unique_node_names(walk: Walk) -> Iterator[str]:
    """Plans are keyed by node names, so each has to be there and to mean one node."""
    for name in _repeated(node.name for node in walk.nodes):
        yield f"more than one node '{name}'"
    for node in walk.nodes:
        if not node.name:
            yield f"a node ({node.op_type}) without a name"


def unique_value_names(walk: Walk) -> Iterator[str]:
    """Symbols are keyed by value names; an absent optional output has an empty one."""
    for name in _repeated(value.name for value in walk.values):
        yield f"more than one value '{name}'"
    for value in walk.values:
        if not value.name and (value.name is None or value.uses() or value.is_graph_output()):
            yield f"a value without a name, made by {_spell(value.producer())}"


def topological_order(walk: Walk) -> Iterator[str]:
    """Every value is made before it is read, and by something in the model."""
    problem = first_unmade(walk.model.graph)
    if problem is not None:
        yield f"{problem} is read before it is made"


def typed_values(walk: Walk) -> Iterator[str]:
    """Every value has a type."""
    for value in walk.values:
        if value.type is None and value.name:
            yield f"the value '{value.name}', made by {_spell(value.producer())}, has no type"


def one_opset(walk: Walk) -> Iterator[str]:
    """No node is left that was written for another opset than the model's."""
    for node in walk.nodes:
        if node.version is not None and node.version != walk.model.opset_imports.get(node.domain):
            yield f"{_spell(node)} is of opset {node.version}"


def sound_initializers(walk: Walk) -> Iterator[str]:
    """An initializer is no input, and has the content that its type and shape declare."""
    for graph in walk.graphs:
        inputs = set(graph.inputs)
        for name, value in graph.initializers.items():
            tensor = value.const_value
            if value in inputs:
                yield f"the initializer '{name}' is also an input"
            if tensor is None:
                yield f"the initializer '{name}' has no content"
            elif value.dtype != tensor.dtype or value.shape != tensor.shape:
                yield (
                    f"the initializer '{name}' is declared {value.dtype} {value.shape} "
                    f"and has content of {tensor.dtype} {tensor.shape}"
                )


def own_outputs(walk: Walk) -> Iterator[str]:
    """Outputs of a subgraph are its own and differ; no output of the model is a constant string."""
    for value in walk.model.graph.outputs:
        if value.is_initializer() and value.dtype == ir.DataType.STRING:
            yield f"the output '{value.name}' is a constant string"
    for node in (each for each in walk.nodes if each.attributes):
        for graph in subgraphs(node):
            own = set(own_values(graph))
            if node.domain == "" and node.op_type == "Scan":
                own -= set(graph.inputs)
            for name in _repeated(value.name for value in graph.outputs):
                yield f"{_spell(node)} has a graph that returns '{name}' more than once"
            for value in graph.outputs:
                if value not in own:
                    yield f"{_spell(node)} has a graph that returns '{value.name}', not its own"


RULES: dict[str, Rule] = {
    "no functions": no_functions,
    "no Constant nodes": no_constant_nodes,
    "unique node names": unique_node_names,
    "unique value names": unique_value_names,
    "topological order": topological_order,
    "typed values": typed_values,
    "one opset": one_opset,
    "sound initializers": sound_initializers,
    "own outputs": own_outputs,
}


def _repeated(names: Iterable[str | None]) -> list[str]:
    """Return the names that come more than once, in the order of their repetition."""
    listed = [name for name in names if name]
    if len(set(listed)) == len(listed):
        return []
    seen: set[str] = set()
    again: dict[str, None] = {}
    for name in listed:
        if name in seen:
            again[name] = None
        seen.add(name)
    return list(again)


def _spell(node: ir.Node | None) -> str:
    return "no node" if node is None else f"node '{node.name}' ({node.op_type})"
