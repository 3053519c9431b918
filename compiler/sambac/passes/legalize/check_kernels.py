"""Refuse what onnxruntime cannot run, all of it in one message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import onnx
import onnx_ir as ir

from pef.dtypes import BY_NUMBER
from sambac.errors import CompileError
from sambac.graph.nodes import all_nodes
from sambac.graph.origins import place_of
from sambac.graph.protos import skeleton
from sambac.graph.value_types import value_info
from sambac.kernels.failures import why_run_fails
from sambac.kernels.probe import RefusedError, open_session
from sambac.kernels.registry import KernelCall, mixes_types, why_not_runnable
from sambac.passes.base import WITHOUT_KERNEL, Pass

_MAX_NODES = 10


@dataclass(frozen=True)
class CheckKernels(Pass):
    """Raise `CompileError` listing every operator for which onnxruntime has no CPU kernel.

    Runs after casts and function bodies have done what they can.
    """

    name: ClassVar[str] = "check_kernels"
    operators: ClassVar[frozenset[str] | None] = frozenset({WITHOUT_KERNEL})

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Check `model`, subgraphs included; it is not changed."""
        missing: dict[KernelCall, list[ir.Node]] = {}
        for node in all_nodes(model.graph):
            if why_not_runnable(node, model.opset_imports) is not None:
                missing.setdefault(KernelCall.of(node, model.opset_imports), []).append(node)
        refused = {
            call: nodes for call, nodes in missing.items() if not _runs_alone(nodes[0], model)
        }
        if refused:
            raise CompileError(_message(refused, model.opset_imports))
        _require_types(model)
        return ir.passes.PassResult(model, modified=False)


def require_one_type(model: ir.Model) -> None:
    """Raise `CompileError` if operators of `model` take operands of several types for one."""
    mixed: dict[KernelCall, list[ir.Node]] = {}
    for node in all_nodes(model.graph):
        call = KernelCall.of(node, model.opset_imports)
        if mixes_types(call):
            mixed.setdefault(call, []).append(node)
    if mixed:
        raise CompileError(_message(mixed, model.opset_imports))


def _runs_alone(node: ir.Node, model: ir.Model) -> bool:
    """Ask onnxruntime itself, which has function bodies of its own for some operators."""
    if node.version is not None or why_run_fails(node) is not None:
        return False
    proto = onnx.ModelProto(ir_version=max(model.ir_version, 8))
    for domain, version in model.opset_imports.items():
        proto.opset_import.add(domain=domain, version=version)
    proto.graph.name = "alone"
    proto.graph.node.append(ir.serde.serialize_node(node))
    for value in dict.fromkeys(value for value in node.inputs if value is not None):
        proto.graph.input.append(value_info(value))
    for value in node.outputs:
        if value.name:
            proto.graph.output.append(value_info(value))
    try:
        open_session(proto.SerializeToString())
    except RefusedError:
        return False
    return True


def _message(refused: Mapping[KernelCall, list[ir.Node]], opsets: Mapping[str, int]) -> str:
    lines = [
        f"  {call}: {why_not_runnable(nodes[0], opsets)}; {_spell_nodes(nodes)}"
        for call, nodes in refused.items()
    ]
    count = sum(len(nodes) for nodes in refused.values())
    if all(map(mixes_types, refused)):
        inputs = [_whole_input(nodes) for nodes in refused.values()]
        if all(inputs):
            return "\n".join(filter(None, inputs))
        what = "operator of the model mixes" if count == 1 else "operators of the model mix"
        head = (
            f"{count} {what} types; give its inputs and its weights one type (in PyTorch, "
            "module.float() or inputs of the weights' type):"
        )
        return "\n".join((head, *lines))
    what = "operator of the model has" if count == 1 else "operators of the model have"
    head = (
        f"{count} {what} no kernel in the installed onnxruntime, not even on a wider type; "
        "replace them in the model and export it again:"
    )
    return "\n".join((head, *lines))


def _whole_input(nodes: list[ir.Node]) -> str | None:
    """Return that `nodes` take an input without fractions beside floating-point numbers, if so."""
    given = [value for value in nodes[0].inputs if value is not None and value.dtype is not None]
    floats = [value for value in given if _is_float(value)]
    whole = [value for value in given if value.is_graph_input() and not _is_float(value)]
    if not floats or not whole:
        return None
    came, wanted = (BY_NUMBER[int(value.dtype or 0)].name for value in (whole[0], floats[0]))
    name = whole[0].name
    return (
        f"input '{name}' is {came}, and {nodes[0].op_type} ({_spell_nodes(nodes)}) takes it beside "
        f"{wanted}, so {wanted} was expected; give {wanted} values, or cast it in the model (in "
        f"PyTorch, {name}.float())"
    )


def _is_float(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()


def _spell_nodes(nodes: list[ir.Node]) -> str:
    names = ", ".join(f"'{node.name}'{place_of(node)}" for node in nodes[:_MAX_NODES])
    more = f" and {len(nodes) - _MAX_NODES} more" if len(nodes) > _MAX_NODES else ""
    return f"node{'s' if len(nodes) > 1 else ''} {names}{more}"


def _require_types(model: ir.Model) -> None:
    """Every value needs a type; where one has none, onnxruntime says why."""
    untyped = [
        f"'{value.name}'"
        for node in all_nodes(model.graph)
        for value in node.outputs
        if value.name and value.type is None
    ]
    if not untyped:
        return
    reason = "its operators contradict each other"
    try:
        open_session(skeleton(model).SerializeToString())
    except RefusedError as refusal:
        reason = str(refusal)
    raise CompileError(f"the types of {', '.join(untyped[:_MAX_NODES])} are unknown: {reason}")
