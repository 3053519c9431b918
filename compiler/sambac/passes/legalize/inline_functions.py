"""Functions, replaced by their bodies: those of a model, and those of the ONNX standard.

f(x), f of the model   ->  what f is made of, so that the planners see every operator
y = Mish(x)            ->  y = x * Tanh(Softplus(x)), where Mish has no kernel
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir
from onnx_ir.passes import common

from sambac.errors import CompileError
from sambac.graph.function_bodies import body_of, call_body, hand_over
from sambac.graph.names import ModelNames
from sambac.graph.nodes import all_nodes, input_at
from sambac.graph.opsets import mark_differing
from sambac.kernels.registry import why_not_runnable
from sambac.ops import gradient_of
from sambac.passes.base import FUNCTIONS, WITHOUT_KERNEL, Pass
from sambac.passes.rewriting import present, used

from .infer_shapes import InferShapes
from .insert_casts import wider_call
from .lift_constants import LiftConstants
from .names_and_order import SortNodes, UniqueNames

_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


@dataclass(frozen=True)
class InlineFunctions(Pass):
    """Replace every call of a function by its body, recursively and inside subgraphs too.

    Values of attributes come from the call, then from the function's defaults. Afterwards the
    model has no functions. Operators of a body that was written for another opset, and that differ
    in the model's, keep the version they were written for. Raises `CompileError` for functions
    that call themselves and for calls that do not fit.
    """

    name: ClassVar[str] = "inline_functions"
    operators: ClassVar[frozenset[str] | None] = frozenset({FUNCTIONS})

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Inline all calls in `model`."""
        if not model.functions:
            return ir.passes.PassResult(model, modified=False)
        for function in model.functions.values():
            _require_no_graph_parameter(function)
            function.sort()
            for node in all_nodes(function):
                node.name = node.name or node.op_type
            _adopt_opsets(function, model)
        for graph in (model.graph, *model.functions.values()):
            _complete_calls(graph, model)
        try:
            common.InlinePass()(model)
        except ir.passes.PreconditionError as error:
            raise CompileError(
                f"the model's functions call themselves ({error}); export it without recursion"
            ) from error
        model.functions.clear()
        return ir.passes.PassResult(model, modified=True)


def _require_no_graph_parameter(function: ir.Function) -> None:
    """Refuse what cannot be inlined: a graph that the caller passes as an attribute."""
    for node in all_nodes(function):
        for attribute in node.attributes.values():
            if attribute.is_ref() and attribute.type in _GRAPHS:
                raise CompileError(
                    f"the function '{function.name}' has a graph as its parameter "
                    f"'{attribute.ref_attr_name}', which cannot be inlined; "
                    "export the model with this function inlined"
                )


def _complete_calls(graph: Iterable[ir.Node], model: ir.Model) -> None:
    """Give each call in `graph` all outputs of its function, those it leaves out included."""
    for node in all_nodes(graph):
        function = model.functions.get(node.op_identifier())
        if function is None:
            continue
        given = (len(node.inputs), len(node.outputs))
        taken = (len(function.inputs), len(function.outputs))
        if given[0] > taken[0] or given[1] > taken[1]:
            raise CompileError(
                f"node '{node.name or node.op_type}' calls the function '{function.name}' with "
                f"{given[0]} inputs and {given[1]} outputs; it has {taken[0]} and {taken[1]}; "
                "export the model again"
            )
        graphs = [name for name, item in node.attributes.items() if item.type in _GRAPHS]
        if graphs:
            raise CompileError(
                f"node '{node.name or node.op_type}' calls the function '{function.name}' with the "
                f"graph '{graphs[0]}', which cannot be inlined; export the model with this "
                "function inlined"
            )
        if len(node.outputs) < len(function.outputs):
            node.resize_outputs(len(function.outputs))
        for index, value in enumerate(node.outputs):
            value.name = value.name or f"{node.op_type}_unused_{index}"


def _adopt_opsets(function: ir.Function, model: ir.Model) -> None:
    """Give `function` the model's opsets; operators that differ there keep their version."""
    for domain, version in function.opset_imports.items():
        model.opset_imports.setdefault(domain, version)
    mark_differing(function, function.opset_imports, model.opset_imports)
    for domain in function.opset_imports:
        function.opset_imports[domain] = model.opset_imports[domain]


_MAX_ROUNDS = 8
_SCORES, _PAST_KEYS = 3, 4
_CLEAN_UP = (InlineFunctions(), UniqueNames(), SortNodes(), LiftConstants(), InferShapes())


@dataclass(frozen=True)
class ExpandFunctions(Pass):
    """Replace nodes without a kernel by their function bodies, again and again.

    Attention is, too, where it gives out scores of keys of an open number: onnxruntime concludes
    that there are none, and computes with that what reads their sizes.

    A node that would run on a wider type is left alone, and so is one without a body. With
    `keep_differentiable` those with a gradient rule are, too: it beats the gradient of the body.
    Types must be known; they and the shapes are inferred anew where something was expanded.
    """

    name: ClassVar[str] = "expand_functions"
    operators: ClassVar[frozenset[str] | None] = frozenset({WITHOUT_KERNEL, "Attention"})
    keep_differentiable: bool = False

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Expand in `model`, subgraphs included."""
        rounds = 0
        while rounds < _MAX_ROUNDS and expand_all(model, self._wants):
            rounds += 1
        return ir.passes.PassResult(model, modified=rounds > 0)

    def _wants(self, node: ir.Node, model: ir.Model) -> bool:
        if self.keep_differentiable and gradient_of(node) is not None:
            return False
        return _needs_body(node, model) or _gives_open_scores(node)


def expand_all(model: ir.Model, wanted: Callable[[ir.Node, ir.Model], bool]) -> bool:
    """Put the bodies of nodes that are `wanted` in their places; return whether there were any.

    Types must be known; they and the shapes are inferred anew.
    """
    count = 0
    names = ModelNames(model)
    for node in all_nodes(model.graph):
        if not wanted(node, model):
            continue
        hand_over(node, names)
        body = body_of(node, model.opset_imports)
        if body is not None:
            call_body(model, node, body, count)
            count += 1
    for step in _CLEAN_UP if count else ():
        step(model)
    return count > 0


def _needs_body(node: ir.Node, model: ir.Model) -> bool:
    opsets = model.opset_imports
    return why_not_runnable(node, opsets) is not None and wider_call(node, opsets) is None


def _gives_open_scores(node: ir.Node) -> bool:
    """Tell whether `node` is an Attention whose scores are read, and the number of keys is open."""
    if (node.domain, node.op_type) != ("", "Attention") or not used(node.outputs[_SCORES:]):
        return False
    keys = present((node.inputs[1], input_at(node, _PAST_KEYS)))
    return any(not value.shape or not isinstance(value.shape[-2], int) for value in keys)
