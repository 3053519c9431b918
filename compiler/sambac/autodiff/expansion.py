"""What gradients flow through, and operators on that way without a rule, replaced by their bodies.

A gradient flows through the values that depend on what is trained. Where an operator between them
has no gradient rule, the function body that ONNX gives for it takes its place:

    Celu(x)  ->  Max(0, x) + Min(0, alpha * (Exp(x / alpha) - 1))

What the operators of the body lack rules for is expanded in turn. A body is brought into the graph
as a small model of its own, in which everything that depends on shapes and constants alone is
folded, so that the cost of an expansion does not grow with the model.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

import onnx_ir as ir

from sambac.errors import CompileError
from sambac.graph.editor import Editor
from sambac.graph.function_bodies import body_of, call_body
from sambac.graph.nodes import all_nodes, copy_node, has_subgraphs, is_stop, reads
from sambac.ops import blocks_gradients, gradient_of, undifferentiable
from sambac.passes.base import Pass
from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.passes.legalize.inline_functions import InlineFunctions
from sambac.passes.legalize.insert_casts import NameCasts
from sambac.passes.legalize.lift_constants import LiftConstants
from sambac.passes.legalize.names_and_order import SortNodes, UniqueNames
from sambac.passes.simplify.eliminate_common_subexpressions import EliminateCommonSubexpressions
from sambac.passes.simplify.eliminate_dead_code import EliminateDeadCode
from sambac.passes.simplify.fold_constants import FoldConstants, InlineBranches
from sambac.passes.simplify.remove_no_ops import RemoveNoOps


def active_values(graph: ir.Graph, trained: Collection[ir.Value]) -> set[ir.Value]:
    """Return the floating-point values of `graph` through which the loss depends on `trained`.

    A value is active if it is trained, or made by a node with an active input that lets gradients
    through. Nodes stand in topological order.
    """
    active = set(trained)
    for node in graph:
        if is_stop(node) or blocks_gradients(node):
            continue
        if any(value in active for value in reads(node)):
            active.update(value for value in node.outputs if is_float(value))
    return active


def needed_nodes(
    graph: ir.Graph, active: Collection[ir.Value], targets: Iterable[ir.Value]
) -> list[ir.Node]:
    """Return the nodes between what is trained and `targets`, in topological order."""
    wanted = {target for target in targets if target in active}
    nodes = []
    for node in reversed(tuple(graph)):
        if is_stop(node) or blocks_gradients(node):
            continue
        if any(value in wanted for value in node.outputs):
            nodes.append(node)
            wanted.update(value for value in reads(node) if value in active)
    nodes.reverse()
    return nodes


def is_float(value: ir.Value) -> bool:
    """Tell whether `value` is a tensor of a floating-point type."""
    return value.dtype is not None and value.dtype.is_floating_point()


logger = logging.getLogger(__name__)

_PREPARE: tuple[Pass, ...] = (
    InlineFunctions(),
    UniqueNames(),
    SortNodes(),
    LiftConstants(),
    InferShapes(),
)
_SIMPLIFY: tuple[Pass, ...] = (NameCasts(), FoldConstants(), InlineBranches(), RemoveNoOps())
_FINISH: tuple[Pass, ...] = (EliminateCommonSubexpressions(), EliminateDeadCode())
_MAX_ROUNDS = 8


def expand_bodies(
    model: ir.Model, targets: Iterable[ir.Value], trained: Collection[ir.Value]
) -> dict[ir.Value, ir.Value]:
    """Expand the nodes between `trained` and `targets` that only their bodies differentiate.

    Returns, for each of `targets`, the value that stands for it afterwards: under the same name,
    but another one where its operator was expanded. Left alone are operators that are declared
    undifferentiable, and those whose body keeps control flow. Types and shapes must be known.
    """
    current = {target: target for target in targets}
    copier = _Copier(model)
    refused: set[ir.Node] = set()
    while True:
        active = active_values(model.graph, trained)
        nodes = needed_nodes(model.graph, active, current.values())
        chosen = [node for node in nodes if _wants_body(node) and node not in refused]
        if not chosen:
            return current
        replaced: dict[ir.Value, ir.Value] = {}
        for node in chosen:
            body = _body_model(node, model)
            if body is None:
                refused.add(node)
            else:
                replaced.update(copier.put(body, node))
        current = {target: replaced.get(value, value) for target, value in current.items()}


def _wants_body(node: ir.Node) -> bool:
    return gradient_of(node) is None and undifferentiable(node) is None and not has_subgraphs(node)


def _body_model(node: ir.Node, model: ir.Model) -> ir.Model | None:
    """Return a model of the body of `node`, with the node's inputs and outputs, or None.

    Inputs that are constants of `model` are initializers of the same content.
    """
    body = body_of(node, model.opset_imports)
    if body is None:
        return None
    inputs = [None if value is None else _like(value, f"input_{index}")
              for index, value in enumerate(node.inputs)]  # fmt: skip
    outputs = [ir.Value(name=f"output_{index}" if value.name else "")
               for index, value in enumerate(node.outputs)]  # fmt: skip
    call = ir.Node(
        node.domain, node.op_type, inputs, list(node.attributes.values()),
        outputs=outputs, name=node.op_type, version=node.version,
    )  # fmt: skip
    given = [value for value in inputs if value is not None]
    graph = ir.Graph(
        [value for value in given if value.const_value is None],
        [value for value in outputs if value.name],
        nodes=[call],
        initializers=[value for value in given if value.const_value is not None],
        opset_imports=dict(model.opset_imports),
        name="body",
    )
    small = ir.Model(graph, ir_version=model.ir_version)
    call_body(small, call, body, 0)
    try:
        _simplify(small)
    except CompileError as error:
        logger.debug("the body of %s is of no use: %s", node.name, error)
        return None
    return None if any(has_subgraphs(inner) for inner in all_nodes(graph)) else small


def _simplify(model: ir.Model) -> None:
    """Inline the call in `model`, and fold what depends on shapes and constants alone.

    A branch taken may settle shapes, and these the next branch.
    """
    for step in _PREPARE:
        step(model)
    for _ in range(_MAX_ROUNDS):
        changed = [step(model).modified for step in _SIMPLIFY]
        if not any(changed):
            break
        InferShapes()(model)
    for step in _FINISH:
        step(model)


def _like(value: ir.Value, name: str) -> ir.Value:
    constant = value.is_initializer() and not value.is_graph_input()
    return ir.Value(
        name=name,
        type=value.type,
        shape=value.shape,
        const_value=value.const_value if constant else None,
    )


class _Copier:
    """Puts small models in the places of nodes of one model."""

    def __init__(self, model: ir.Model) -> None:
        self._editor = Editor(model)

    def put(self, body: ir.Model, node: ir.Node) -> dict[ir.Value, ir.Value]:
        """Replace `node` by the nodes of `body`; return what replaces each of its outputs."""
        copies = self._inputs(body, node)
        outputs = {f"output_{index}": value for index, value in enumerate(node.outputs)}
        self._editor.go_before(node)
        for inner in body.graph:
            self._editor.put(self._copy(inner, node, copies, outputs))
        replaced = {}
        for value in body.graph.outputs:
            old, new = outputs[str(value.name)], copies[value]
            old.replace_all_uses_with(new, replace_graph_outputs=True)
            replaced[old] = new
        self._editor.remove(node)
        return replaced

    def _inputs(self, body: ir.Model, node: ir.Node) -> dict[ir.Value, ir.Value]:
        """Return, by what the body reads, what its copy reads: inputs of `node`, constants."""
        given = {f"input_{index}": value for index, value in enumerate(node.inputs)}
        copies = {}
        for value in (*body.graph.inputs, *body.graph.initializers.values()):
            found = given.get(str(value.name))
            copies[value] = self._constant(value, node) if found is None else found
        return copies

    def _constant(self, value: ir.Value, node: ir.Node) -> ir.Value:
        name = self._fresh(node, value)
        copy = ir.Value(
            name=name, type=value.type, shape=value.shape, const_value=value.const_value
        )
        self._editor.model.graph.register_initializer(copy)
        return copy

    def _copy(
        self,
        inner: ir.Node,
        node: ir.Node,
        copies: dict[ir.Value, ir.Value],
        outputs: dict[str, ir.Value],
    ) -> ir.Node:
        """Copy a node of the body, which is part of the module that `node` comes from."""

        def value_name(value: ir.Value) -> str:
            old = outputs.get(str(value.name))
            return str(old.name) if old else self._fresh(node, value)

        name = self._editor.names.node(f"{node.name}/{inner.op_type}")
        copy = copy_node(inner, copies, name, value_name)
        copy.metadata_props.update(node.metadata_props)
        return copy

    def _fresh(self, node: ir.Node, value: ir.Value) -> str:
        """Return the name of the copy of `value`; absent outputs stay without one."""
        return self._editor.names.value(f"{node.name}/{value.name}") if value.name else ""
