"""Names that the exporter gives to two values, or takes from one; while it runs, here, it does not.

What a translation has nothing to do for is its input, and is then called by the name of the result:
`x.t()` of a vector, `x.repeat(())`. Rules of the optimizer call constants after what they are for,
so that the second clamp of a tensor takes the limits of the first away.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import onnx_ir as ir
from onnxscript.rewriter import RewriterContext
from torch import fx
from torch.onnx._internal.exporter import _core

from sambac.graph.names import value_names

from .guards import replaced

_Values = dict[str, ir.Value | Sequence[ir.Value]]

_KEPT = frozenset({"placeholder", "get_attr"})
"""Where values come from whose names say what they are: inputs, parameters, constants."""


@contextmanager
def kept_names() -> Iterator[None]:
    """Let what goes into translations keep its name, whatever comes out."""
    translate = _core._handle_call_function_node_with_lowering

    def translated(model: ir.Model, node: fx.Node, values: _Values, **others: Any) -> None:
        translate(model, node, values, **others)
        for source in node.all_input_nodes:
            if source.op in _KEPT and isinstance(value := values.get(source.name), ir.Value):
                value.name = source.name

    with replaced(_core, translate.__name__, translated):
        yield


@contextmanager
def new_names(model: ir.Model) -> Iterator[None]:
    """Let what rules of the optimizer add to `model` have names of its own."""
    fresh, add = value_names(model), RewriterContext.initializer

    def added(
        context: RewriterContext, tensor: ir.TensorProtocol, name: str | None = None
    ) -> ir.Value:
        return add(context, tensor, fresh(name or str(tensor.name)))

    with replaced(RewriterContext, "initializer", added):
        yield
