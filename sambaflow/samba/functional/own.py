"""Operators of SambaFlow that torch does not have, or has with fewer parameters."""

from __future__ import annotations

import torch
from torch import Tensor

from sambaflow.samba.arguments.checked import checked


@checked()
def addmm(
    input: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    is_transposed: bool = False,
) -> Tensor:
    """Return `beta * input + alpha * (mat1 @ mat2)`, (..., n, m), to which `input` broadcasts.

    `mat1` is (..., n, k), and `mat2` is (k, m). With `is_transposed` `mat2` is (m, k), as the
    weight of a linear layer is.
    """
    right = mat2.transpose(-2, -1) if is_transposed else mat2
    if mat1.dim() == 2:
        return torch.addmm(input, mat1, right, beta=beta, alpha=alpha)
    product = alpha * torch.matmul(mat1, right)
    # With a beta of 0 not even NaN of `input` counts, as for torch.addmm.
    return product + beta * input if beta else product


@checked()
def triu_fill(input: Tensor, value: float) -> Tensor:
    """Return `input` with `value` above the main diagonal of its last two dimensions.

    So `triu_fill(scores, float("-inf"))` makes attention causal.
    """
    ones = torch.ones(input.shape[-2:], dtype=torch.bool, device=input.device)
    return input.masked_fill(ones.triu(1), value)
