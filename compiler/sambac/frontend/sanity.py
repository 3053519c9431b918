"""What has to hold of a model before anything looks at it closely: damage shows here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache

import onnx
import onnx_ir as ir

from pef.wording import listed
from sambac.errors import CompileError
from sambac.graph.constants import has_element_type
from sambac.graph.traversal import all_graphs, all_nodes


def require_sound(model: ir.Model, name: str) -> None:
    """Raise `CompileError` if names are no text, or inputs and constants have no type.

    `name` is the model's name in the message.
    """
    problems = [
        *_odd_names(model),
        *_untyped_inputs(model),
        *_repeated_inputs(model),
        *_odd_constants(model),
    ]
    # These rely on names that are text.
    problems = problems or [*_undefined_in_functions(model), *_missing_operands(model)]
    if problems:
        raise CompileError(f"{name} is damaged: {listed(problems)}; export or copy it again")


def _odd_names(model: ir.Model) -> Iterator[str]:
    bodies: tuple[ir.Graph | ir.Function, ...] = (model.graph, *model.functions.values())
    for body in bodies:
        opsets: Iterable[tuple[object, int]] = body.opset_imports.items()
        for domain, version in opsets:
            if not isinstance(domain, str):
                yield f"the name of an operator set, {domain!r}, is no text"
            elif version < 1:
                yield f"operator set '{domain}' has the version {version}"
        for node in all_nodes(body):
            # Protobuf returns bytes for what should be text and is not.
            texts: tuple[object, object] = node.op_type, node.domain
            if not all(isinstance(text, str) for text in texts):
                yield f"the name of an operator, {node.op_type!r}, is no text"


def _undefined_in_functions(model: ir.Model) -> Iterator[str]:
    """Find what functions read and nothing defines; a function sees nothing from outside."""
    for function in model.functions.values():
        defined = set(function.inputs)
        for graph in function.subgraphs():
            defined.update(graph.inputs, graph.initializers.values())
        for node in all_nodes(function):
            for value in node.inputs:
                if value is not None and value.producer() is None and value not in defined:
                    yield f"function '{function.name}' reads '{value.name}', which it lacks"


def _untyped_inputs(model: ir.Model) -> Iterator[str]:
    for value in model.graph.inputs:
        if value.type is None or value.dtype == ir.DataType.UNDEFINED:
            yield f"input '{value.name}' has no type"


def _repeated_inputs(model: ir.Model) -> Iterator[str]:
    counts = Counter(str(value.name) for value in model.graph.inputs)
    yield from (f"{count} inputs are named '{name}'" for name, count in counts.items() if count > 1)


def _missing_operands(model: ir.Model) -> Iterator[str]:
    """Find operators that lack inputs which ONNX requires; its own inference would stumble."""
    bodies: tuple[ir.Graph | ir.Function, ...] = (model.graph, *model.functions.values())
    for body in bodies:
        opsets = body.opset_imports
        for node in all_nodes(body):
            least = _fewest_inputs(node.op_type, node.domain, opsets.get(node.domain))
            if len(node.inputs) < least:
                yield (
                    f"operator {node.op_type} '{node.name or ''}' needs {least} inputs and has "
                    f"{len(node.inputs)}"
                )


@cache
def _fewest_inputs(op_type: str, domain: str, version: int | None) -> int:
    """Return how many inputs an operator has at least; 0 where ONNX does not define it."""
    if version is None or not onnx.defs.has(op_type, domain):
        return 0
    try:
        return int(onnx.defs.get_schema(op_type, version, domain).min_input)
    except onnx.defs.SchemaError:
        return 0


def _odd_constants(model: ir.Model) -> Iterator[str]:
    for graph in all_graphs(model.graph):
        for name, value in graph.initializers.items():
            tensor = value.const_value
            if tensor is None or not has_element_type(tensor):
                yield f"constant '{name}' has no known type"
            elif (found := _raw_size(tensor)) not in (None, tensor.nbytes):
                yield (
                    f"constant '{name}' holds {found} bytes; its shape and type need "
                    f"{tensor.nbytes}"
                )
            elif found is None and not _has_all_elements(tensor):
                yield f"constant '{name}' does not hold the elements that its shape and type need"


def _has_all_elements(tensor: ir.TensorProtocol) -> bool:
    """Tell whether a tensor whose elements are listed one by one has as many as it should."""
    if not isinstance(tensor, ir.serde.TensorProtoTensor):
        return True
    try:
        return tuple(tensor.numpy().shape) == tuple(tensor.shape.numpy())
    except (ValueError, TypeError, AssertionError):  # onnx_ir asserts what fits which list
        return False


def _raw_size(tensor: ir.TensorProtocol) -> int | None:
    """Return the bytes that a message holds for `tensor`, None where it holds no plain bytes."""
    if not isinstance(tensor, ir.serde.TensorProtoTensor) or tensor.dtype == ir.DataType.STRING:
        return None
    message = tensor.raw
    return len(message.raw_data) if message.HasField("raw_data") else None
