"""Slices by index: gathered from a tensor, scattered into one; and drawing by given randoms.

Made of torch's operations: they run on the host, are traced and compiled, and `sn_gather` and
`sn_scatter` have gradients. Their dimensions of slices are counted behind the batched ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from sambaflow.samba.arguments.checked import checked
from sambaflow.submodules import on_demand

__all__ = ["sn_gather", "sn_multinomial", "sn_scatter"]

__getattr__ = on_demand(__name__)  # says which name may be meant

_ACCUMULATES = {"kUpdate": False, "kAdd": True}
"""What a scattered slice does: it replaces the values it meets, or is added to them."""


@checked()
def sn_gather(
    input_tensor: Tensor,
    start_indices: Tensor,
    gather_dims: Sequence[int],
    gather_lengths: Sequence[int],
    batched_dims: int = 0,
) -> Tensor:
    """Return slices of `input_tensor`, one for each vector in the last dimension of the indices.

    The first `batched_dims` dimensions of both belong together and have equal sizes, or size 1 in
    `start_indices`. `gather_dims` count the dimensions of `input_tensor` behind them; a slice
    begins in these where the vector says and is as long as `gather_lengths` say, and in others
    whole. The result has the sizes of `start_indices` without the last, and then those of a slice:
    rows [S, D] by indices [N, T, 1] with `gather_dims=[0]` and `gather_lengths=[1]` give
    [N, T, 1, D].

    Raises ValueError with all that does not fit together, and IndexError for an index outside.
    """
    sizes = input_tensor.shape[batched_dims:]
    lengths = dict(zip(gather_dims, gather_lengths, strict=False))
    window = [lengths.get(dim, size) for dim, size in enumerate(sizes)]
    problems = [*_problems(input_tensor, start_indices, gather_dims, window, batched_dims)]
    if len(gather_lengths) != len(gather_dims):
        problems.append(f"{len(gather_lengths)} gather_lengths for {len(gather_dims)} gather_dims")
    _refuse("sn_gather", problems)
    starts = dict(zip(gather_dims, start_indices.long().unbind(-1), strict=True))
    if not batched_dims and list(gather_lengths) == [1]:  # the usual case, as one lookup of rows
        (dim,) = gather_dims
        rows = input_tensor.movedim(dim, 0)[starts[dim]]
        return rows.unsqueeze(starts[dim].dim() + dim)
    return input_tensor[_places(input_tensor.shape[:batched_dims], window, starts)]


@checked()
def sn_scatter(
    operand: Tensor,
    update: Tensor,
    start_indices: Tensor,
    scatter_dims: Sequence[int],
    rmw_op: str = "kUpdate",
    unique_indices: bool = False,
    batched_dims: int = 0,
) -> Tensor:
    """Return `operand` with slices of it replaced by those of `update`, or with these added to it.

    The reverse of `sn_gather`: there is a slice for each vector in the last dimension of
    `start_indices`, which says where it begins in `scatter_dims`; in others it is whole. `update`
    has the sizes of `start_indices` without the last, and then those of a slice: rows [B, S, D]
    take T of their own from an update [B, T, 1, D] at indices [B, T, 1] with `scatter_dims=[0]`
    and `batched_dims=1`. `rmw_op` is `kUpdate` or `kAdd`. A slice that does not lie inside is left
    out. Where slices overlap, `kAdd` adds them all and `kUpdate` keeps one of them;
    `unique_indices` promises that none do, and decides nothing.

    `update` is converted to the type of `operand`. Raises ValueError with all that does not fit
    together.
    """
    leading = start_indices.dim() - 1
    window = list(update.shape[leading:])
    problems = [*_problems(operand, start_indices, scatter_dims, window, batched_dims)]
    if update.shape[:leading] != start_indices.shape[:-1]:
        problems.append(
            f"update is {list(update.shape)} and start_indices {list(start_indices.shape)}; an "
            f"update has the sizes of the indices without the last, and then those of a slice"
        )
    if rmw_op not in _ACCUMULATES:
        problems.append(f"rmw_op is {rmw_op!r}, expected {' or '.join(_ACCUMULATES)}")
    if not torch.can_cast(update.dtype, operand.dtype):
        problems.append(f"update is {update.dtype}, which {operand.dtype} cannot hold")
    _refuse("sn_scatter", problems)
    starts = dict(zip(scatter_dims, start_indices.long().unbind(-1), strict=True))
    sizes = operand.shape[batched_dims:]
    inside = [(at >= 0) & (at <= sizes[dim] - window[dim]) for dim, at in starts.items()]
    fits = torch.stack(inside).all(0)
    # What does not fit goes behind the end of one dimension, and is cut off with it.
    first = scatter_dims[0]
    outside = {dim: sizes[dim] if dim == first else 0 for dim in starts}
    starts = {dim: torch.where(fits, at, outside[dim]) for dim, at in starts.items()}
    longer = pad(operand, [0, 0] * (len(sizes) - first - 1) + [0, window[first]])
    places = _places(operand.shape[:batched_dims], window, starts)
    written = longer.index_put(places, update.to(operand.dtype), _ACCUMULATES[rmw_op])
    return written.narrow(batched_dims + first, 0, sizes[first])


@checked()
def sn_multinomial(probs: Tensor, pre_generated_randoms: Tensor) -> Tensor:
    """Draw from the distributions `probs` by the random numbers that are given.

    A random number r from 0 to 1 draws the first class at which the sum of the probabilities so far
    is more than r times the sum of all. So equal randoms draw equally, on the host as on the
    device, and what has no probability is never drawn. `probs` is [..., K], the randoms are
    [..., S], and the result [..., S] in int64. Sums are float32.

    Raises ValueError if the dimensions before the last differ.
    """
    if probs.shape[:-1] != pre_generated_randoms.shape[:-1]:
        raise ValueError(
            f"sn_multinomial: probs is {list(probs.shape)} and pre_generated_randoms "
            f"{list(pre_generated_randoms.shape)}, expected equal sizes but for the last"
        )
    sums = probs.float().cumsum(-1)
    reached = pre_generated_randoms.float() * sums[..., -1:]
    before = (sums[..., None, :] <= reached[..., None]) & (sums < sums[..., -1:])[..., None, :]
    return before.sum(-1)


def _problems(
    tensor: Tensor,
    start_indices: Tensor,
    dims: Sequence[int],
    window: Sequence[int],
    batched_dims: int,
) -> Iterator[str]:
    """Yield what is wrong with slices of the sizes `window` that begin in `dims` of `tensor`."""
    sizes, batch = tensor.shape[batched_dims:], tensor.shape[:batched_dims]
    if not 0 <= batched_dims <= min(tensor.dim(), start_indices.dim() - 1):
        yield f"batched_dims is {batched_dims}, more than the tensor or start_indices have"
    elif any(
        given not in (1, size) for given, size in zip(start_indices.shape, batch, strict=False)
    ):
        yield (
            f"start_indices is {list(start_indices.shape)}, expected the batched sizes "
            f"{list(batch)} first, or 1 for them"
        )
    if start_indices.dim() and start_indices.shape[-1] != len(dims):
        yield (
            f"start_indices has {start_indices.shape[-1]} indices a slice for the dimensions "
            f"{list(dims)}; its last dimension is one index for each"
        )
    if not dims or len(set(dims)) < len(dims) or not set(dims) <= set(range(len(sizes))):
        yield f"the dimensions {list(dims)} are not different ones of 0 to {len(sizes) - 1}"
    elif len(window) != len(sizes) or any(
        not (0 < length <= size if dim in dims else length == size)
        for dim, (length, size) in enumerate(zip(window, sizes, strict=False))
    ):
        yield (
            f"a slice of {list(window)} is no part of {list(sizes)}; it is whole but for the "
            f"dimensions {list(dims)}"
        )


def _refuse(name: str, problems: Sequence[str]) -> None:
    if problems:
        raise ValueError(f"{name}: {'; '.join(problems)}")


def _places(
    batch: Sequence[int], window: Sequence[int], starts: Mapping[int, Tensor]
) -> tuple[Tensor, ...]:
    """Return the index of every element of all slices, a tensor for each dimension."""
    at = next(iter(starts.values()))
    slices = len(window)
    rank = at.dim() + slices
    index = [_along(size, dim, rank, at.device) for dim, size in enumerate(batch)]
    for dim, length in enumerate(window):
        inside = _along(length, at.dim() + dim, rank, at.device)
        begin = starts.get(dim)
        index.append(
            inside if begin is None else inside + begin.reshape(*begin.shape, *[1] * slices)
        )
    return tuple(index)


def _along(size: int, dim: int, rank: int, device: torch.device) -> Tensor:
    """Return the numbers below `size` along dimension `dim` of `rank`, the others of size 1."""
    return torch.arange(size, device=device).view([-1 if d == dim else 1 for d in range(rank)])
