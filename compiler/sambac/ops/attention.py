"""Attention: scores of every query against every key, and the mix of values they weigh."""

from __future__ import annotations

import onnx_ir as ir

from sambac.graph.nodes import input_at, int_attribute

from .family import Family, FlopRule, dim, each, elements, qualified
from .gradients.attention import attention


def _attention(key: int, past: int | None) -> FlopRule:
    """4 * queries * keys for scores and mix; axis -2 of inputs `key` and `past` is the length."""

    def rule(node: ir.Node) -> int:
        query = input_at(node, 0)
        length = dim(input_at(node, key), -2) or dim(query, -2)
        if past is not None:
            length += dim(input_at(node, past), -2)
        return 4 * elements(query) * length

    return rule


def _with_projection(node: ir.Node) -> int:
    """The projection of the input by `[inner, 3 * hidden]`, and attention over what it gives."""
    tokens = elements(input_at(node, 0))
    width = dim(input_at(node, 1), -1)
    attended = 4 * elements(node.outputs[0]) * dim(input_at(node, 0), -2)
    return 2 * tokens * width + attended


def _linear(node: ir.Node) -> int:
    """4 * queries * head size: a state of head size squared is updated and read at each step."""
    heads = int_attribute(node, "kv_num_heads") or int_attribute(node, "q_num_heads") or 1
    query = input_at(node, 0)
    return 4 * elements(query) * max(dim(query, -1) // heads, 1)


_MICROSOFT = """
    Attention DecoderMaskedMultiHeadAttention GroupQueryAttention LinearAttention MultiHeadAttention
    QAttention SparseAttention
"""
_FUSED = "it was fused for inference, by onnxruntime's optimizer; train the model as exported"
_NEWER = "it is newer than the operator set of training"

FAMILY = Family(
    "attention",
    {
        **each("Attention", _attention(1, 4)),
        **each("LinearAttention", _linear),
        **each("FlexAttention", _attention(1, None), "ai.onnx.preview"),
        **each(
            "MultiHeadAttention DecoderMaskedMultiHeadAttention", _attention(1, 6), "com.microsoft"
        ),
        **each("GroupQueryAttention SparseAttention", _attention(1, 3), "com.microsoft"),
        **each("Attention QAttention", _with_projection, "com.microsoft"),
        **each("LinearAttention", _linear, "com.microsoft"),
    },
    anchor=True,
    gradients={"Attention": attention},
    undifferentiable={
        **{qualified("com.microsoft", name): _FUSED for name in _MICROSOFT.split()},
        "LinearAttention": _NEWER,
        "ai.onnx.preview.FlexAttention": _NEWER,
    },
)
