"""What has to hold of a model before anything looks at it closely: damage shows here."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from pef.wording import listed
from sambac.constants import has_element_type
from sambac.errors import CompileError
from sambac.traversal import all_graphs, all_nodes


def require_sound(model: ir.Model, name: str) -> None:
    """Raise `CompileError` if names are no text, or inputs and constants have no type.

    `name` is the model's name in the message.
    """
    problems = [*_odd_names(model), *_untyped_inputs(model), *_odd_constants(model)]
    if problems:
        raise CompileError(f"{name} is damaged: {listed(problems)}; export or copy it again")


def _odd_names(model: ir.Model) -> Iterator[str]:
    for body in (model.graph, *model.functions.values()):
        for node in all_nodes(body):
            # Protobuf returns bytes for what should be text and is not.
            texts: tuple[object, object] = node.op_type, node.domain
            if not all(isinstance(text, str) for text in texts):
                yield f"the name of an operator, {node.op_type!r}, is no text"


def _untyped_inputs(model: ir.Model) -> Iterator[str]:
    for value in model.graph.inputs:
        if value.type is None or value.dtype == ir.DataType.UNDEFINED:
            yield f"input '{value.name}' has no type"


def _odd_constants(model: ir.Model) -> Iterator[str]:
    for graph in all_graphs(model.graph):
        for name, value in graph.initializers.items():
            if value.const_value is None or not has_element_type(value.const_value):
                yield f"constant '{name}' has no known type"
