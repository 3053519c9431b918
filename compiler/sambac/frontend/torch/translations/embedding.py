"""Embeddings whose padding row is not to learn, which no ONNX operator says."""

from __future__ import annotations

import onnx_ir as ir

from .operators import op, stop


def embedding(
    weight: ir.Value,
    indices: ir.Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> ir.Value:
    """Rows of `weight` [V, E]; no gradient reaches the row `padding_idx`, unless it is negative.

    Gradients are dense whether `sparse` or not, which changes no plain optimizer's result.
    """
    if scale_grad_by_freq:
        raise NotImplementedError("embeddings with scale_grad_by_freq do not train")
    rows = op.Gather(weight, indices)
    if padding_idx < 0:
        return rows
    padding = op.Equal(indices, op.CastLike(padding_idx, indices))
    return op.Where(op.Unsqueeze(padding, [-1]), stop(rows), rows)
