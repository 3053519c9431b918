"""Gathering by a pattern: slices of a tensor that begin where indices say."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["sn_gather"]


def sn_gather(
    input: Tensor,
    start_indices: Tensor,
    gather_dims: Sequence[int],
    gather_lengths: Sequence[int],
    batched_dims: int = 0,
) -> Tensor:
    """Return slices of `input`, one for each vector in the last dimension of `start_indices`.

    The first `batched_dims` dimensions of both belong together and have equal sizes, or size 1 in
    the indices. `gather_dims` count the dimensions of `input` behind them; a slice begins in these
    where the vector says and is as long as `gather_lengths` say, and in others whole. The result
    has the sizes of `start_indices` without the last, and then those of a slice: rows [S, D] by
    indices [N, T, 1] with `gather_dims=[0]` and `gather_lengths=[1]` give [N, T, 1, D].

    Raises ValueError where the numbers of dimensions, lengths and indices differ.
    """
    lengths = dict(zip(gather_dims, gather_lengths, strict=True))
    if start_indices.shape[-1] != len(lengths):
        raise ValueError(
            f"start_indices has {start_indices.shape[-1]} indices a slice, and gather_dims "
            f"{list(gather_dims)}; the last dimension is one index for each"
        )
    starts = dict(zip(lengths, start_indices.long().unbind(-1), strict=True))
    sizes = input.shape[batched_dims:]
    if not batched_dims and len(lengths) == 1:
        (dim, length), start = *lengths.items(), starts[gather_dims[0]]
        if length == 1:  # the usual case, as one lookup of whole rows
            rows = input.movedim(dim, 0)[start]
            return rows.unsqueeze(start.dim() + dim)
    slices = len(sizes)
    rank = start_indices.dim() - 1 + slices
    index = [_along(torch.arange(input.shape[d]), d, rank) for d in range(batched_dims)]
    for dim, size in enumerate(sizes):
        place = rank - slices + dim
        if dim in starts:
            begin = starts[dim].reshape(*starts[dim].shape, *[1] * slices)
            index.append(begin + _along(torch.arange(lengths[dim]), place, rank))
        else:
            index.append(_along(torch.arange(size), place, rank))
    return input[tuple(index)]


def _along(values: Tensor, dim: int, rank: int) -> Tensor:
    """Return `values` along dimension `dim` of `rank`, the others of size 1."""
    return values.view([-1 if place == dim else 1 for place in range(rank)])
