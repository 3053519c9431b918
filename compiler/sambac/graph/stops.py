"""Values through which no gradient flows, although the operator has one: PyTorch's `detach`.

The mark stands on an Identity node and counts until the gradients are made; simplification, which
comes later, removes the node.
"""

from __future__ import annotations

import onnx_ir as ir

_KEY = "stop_gradient"


def mark_stop(node: ir.Node) -> None:
    """Let no gradient flow through `node`, an Identity."""
    node.metadata_props[_KEY] = "1"


def is_stop(node: ir.Node) -> bool:
    """Tell whether `node` bears the mark."""
    return _KEY in node.metadata_props
