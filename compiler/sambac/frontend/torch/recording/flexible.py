"""Flexible attention, whose scores functions change: `torch.nn.attention.flex_attention`.

    flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + bias[h, i - j], block_mask=mask)

PyTorch compiles it for a GPU, and on a processor refuses gradients. Here it is what it means: the
functions are called for all places at once by `torch.vmap`, as PyTorch does where it only runs.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch._dynamo import _trace_wrapped_higher_order_op as picking
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from sambac.frontend.torch.patching import replaced, replaced_here

_MODULE = "torch.nn.attention.flex_attention"


@contextmanager
def flexible_attention() -> Iterator[None]:
    """Let flexible attention be operators for this thread, if anybody has loaded it."""
    module = sys.modules.get(_MODULE)
    if module is None:
        yield
        return
    with (
        replaced_here(module, "_validate_device", _anywhere),
        replaced_here(module, "setup_compilation_env", nullcontext),
        replaced_here(module, "flex_attention_hop", _attention),
        replaced_here(picking, "TransformGetItemToIndex", _Picking),
        replaced(module, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True),
    ):
        yield


def _anywhere(*_tensors: Tensor) -> None:
    """Let gradients be on any device."""


def _attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Callable[..., Tensor], *settings: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the results [B, H, L, E], and of each row log2 of its sum and its largest score.

    `settings` are the parts of the mask, of which a function is the last one, the scale, and what
    is for kernels. In rows of which the mask leaves nothing the results are zero.
    """
    mask, scale, *_ = settings
    batch, heads, rows, _ = query.shape
    key, value = (
        one.repeat_interleave(heads // one.shape[1], 1).expand(batch, *[-1] * 3)
        for one in (key, value)
    )
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = query.to(wide) @ key.to(wide).transpose(-2, -1) * scale
    places = [torch.arange(size, device=query.device) for size in (batch, heads, rows)]
    places.append(torch.arange(key.shape[2], device=query.device))
    with _Picking():
        kept = _for_all(mask[-1])(*places)
        scores = _for_all(score_mod, with_scores=True)(scores, *places)
    scores = scores.masked_fill(~kept, -math.inf)
    shares = torch.ops.aten._safe_softmax(scores, -1).to(query.dtype)
    bits = scores.logsumexp(-1) / math.log(2), scores.max(-1)[0] / math.log(2)
    return shares @ value.to(query.dtype), *bits


def _for_all(function: Callable[..., Tensor], *, with_scores: bool = False) -> Callable[..., Any]:
    """Return what calls a function of one place, or of a score too, for all of [B, H, L, S]."""
    scores = (0,) if with_scores else ()
    for axis in (3, 2, 1, 0):
        places = tuple(0 if axis == other else None for other in range(4))
        function = torch.vmap(function, in_dims=(*scores, *places), out_dims=0)
    return function


class _Picking(TorchFunctionMode):
    """Lets `x[i, j]` be an operator where the places are tensors, not numbers that they become."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call an operator."""
        if func is Tensor.__getitem__:
            places = pytree.tree_leaves(args[1])
            tensors = [place for place in places if isinstance(place, Tensor)]
            if all(isinstance(place, Tensor | int) for place in places):
                if not tensors:  # a list of numbers, too, has one for each axis here
                    return func(args[0], tuple(places))
                return torch.ops.aten.index(args[0], [_place(one, tensors[0]) for one in places])
        return func(*args, **(kwargs or {}))


def _place(given: Tensor | int, like: Tensor) -> Tensor:
    """Return a place as a tensor, which `torch.vmap` takes as it takes another place."""
    return given if isinstance(given, Tensor) else torch.full_like(like, given)
