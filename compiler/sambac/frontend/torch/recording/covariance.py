"""Covariances without a look at values: PyTorch looks whether the sum of the weights is enough."""

from __future__ import annotations

import torch
from torch import Tensor


def cov(
    x: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:
    """Return the covariances [V, V] of V variables, or the variance of one, as `torch.cov`.

    Shapes: `x` [V, N] or [N], or a scalar; `fweights` (whole numbers) and `aweights` [N], which are
    not below 0: PyTorch looks at that too. Raises `ValueError` for other shapes and types.
    """
    if x.dim() > 2 or x.dtype == torch.bool:
        raise ValueError(f"cov expects numbers of at most 2 axes, not {x.dtype} of {x.dim()}")
    rows = x if x.dim() == 2 else x.reshape(1, -1)
    count = rows.shape[1]
    weights = _product(fweights, aweights, count)
    if weights is None:
        centred = rows - (rows.sum(1) / count).unsqueeze(1)
        return _of_all(centred @ centred.T.conj() / max(count - correction, 0))
    total = weights.sum()
    centred = rows - ((rows * weights).sum(1) / total).unsqueeze(1)
    products = centred @ (centred * weights).T.conj()
    taken = correction * (1 if aweights is None else (weights * aweights).sum() / total)
    return _of_all(products / (total - taken).clamp(min=0))


def _of_all(covariances: Tensor) -> Tensor:
    """Return the variance alone, if there is one; others are no view, and may be written to."""
    return covariances.reshape(()) if covariances.numel() == 1 else covariances


def _product(fweights: Tensor | None, aweights: Tensor | None, count: int) -> Tensor | None:
    given = [weights for weights in (fweights, aweights) if weights is not None]
    if any(weights.shape != (count,) for weights in given):
        raise ValueError(f"cov expects weights of the shape [{count}], one for each observation")
    if fweights is not None and (fweights.is_floating_point() or fweights.dtype == torch.bool):
        raise ValueError(f"cov expects fweights of whole numbers, not {fweights.dtype}")
    if len(given) == 2:
        return given[0] * given[1]
    return given[0] if given else None


def corrcoef(x: Tensor) -> Tensor:
    """Return the correlations [V, V] of V variables, or that of one, as `torch.corrcoef`.

    Shapes: `x` [V, N] or [N], or a scalar.
    """
    found = cov(x)
    if found.dim() == 0:
        return found / found
    deviations = found.diagonal().real.sqrt()
    ratios = found / deviations.unsqueeze(1) / deviations
    if not ratios.is_complex():
        return ratios.clamp(-1, 1)
    return torch.complex(ratios.real.clamp(-1, 1), ratios.imag.clamp(-1, 1))
