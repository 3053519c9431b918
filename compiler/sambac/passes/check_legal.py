"""The verifier of legal form: one small function per rule, all of them run after every pass.

Legal form is what legalization establishes and every later pass keeps:

- the model has no functions
- no node is a Constant
- every node has a name of its own
- every value has a name of its own, in subgraphs too
- nodes are in topological order
- every value has a type
- no initializer is also an input, and each has content of its declared type and shape
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx_ir as ir

from .traversal import first_unmade, own_values


def check_legal(model: ir.Model) -> list[str]:
    """Return every breach of legal form in `model`, each with the rule and what breaks it."""
    return [f"{rule}: {breach}" for rule, check in RULES.items() for breach in check(model)]


def no_functions(model: ir.Model) -> Iterator[str]:
    """The model has no functions: all are inlined."""
    for function in model.functions.values():
        yield f"function '{function.name}'"


def no_constant_nodes(model: ir.Model) -> Iterator[str]:
    """Constants are initializers."""
    for node in model.graph.all_nodes():
        if node.op_type == "Constant" and node.domain == "":
            yield _spell(node)


def unique_node_names(model: ir.Model) -> Iterator[str]:
    """Plans are keyed by node names, so each has to be there and to mean one node."""
    seen: set[str] = set()
    for node in model.graph.all_nodes():
        if not node.name:
            yield f"a node ({node.op_type}) without a name"
        elif node.name in seen:
            yield f"more than one node '{node.name}'"
        else:
            seen.add(node.name)


def unique_value_names(model: ir.Model) -> Iterator[str]:
    """Symbols are keyed by value names; an absent optional output has an empty one."""
    seen: set[str] = set()
    for graph in model.graphs():
        for value in dict.fromkeys(own_values(graph)):
            if not value.name:
                if value.name is None or value.uses() or value.is_graph_output():
                    yield f"a value without a name, made by {_spell(value.producer())}"
            elif value.name in seen:
                yield f"more than one value '{value.name}'"
            else:
                seen.add(value.name)


def topological_order(model: ir.Model) -> Iterator[str]:
    """Every value is made before it is read, and by something in the model."""
    problem = first_unmade(model.graph)
    if problem is not None:
        yield f"{problem} is read before it is made"


def typed_values(model: ir.Model) -> Iterator[str]:
    """Every value has a type."""
    for node in model.graph.all_nodes():
        for value in node.outputs:
            if value.type is None and value.name:
                yield f"the value '{value.name}', made by {_spell(node)}, has no type"


def sound_initializers(model: ir.Model) -> Iterator[str]:
    """An initializer is no input, and has the content that its type and shape declare."""
    for graph in model.graphs():
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


RULES: dict[str, Callable[[ir.Model], Iterator[str]]] = {
    "no functions": no_functions,
    "no Constant nodes": no_constant_nodes,
    "unique node names": unique_node_names,
    "unique value names": unique_value_names,
    "topological order": topological_order,
    "typed values": typed_values,
    "sound initializers": sound_initializers,
}


def _spell(node: ir.Node | None) -> str:
    return "nothing" if node is None else f"node '{node.name}' ({node.op_type})"
