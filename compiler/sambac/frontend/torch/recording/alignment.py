"""Connectionist temporal classification in operators that can be recorded.

PyTorch's own reads lengths as numbers of Python while it is recorded, and the size of what it keeps
for the gradient depends on them. Here lengths may be inputs:

    p(target) is the sum over all alignments of targets to steps, with blanks between them, computed
    step by step (Graves et al., 2006): alpha_t(s) = the log of the probability that the first t
    steps end in place s of blank, l1, blank, l2, ..., blank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.scan import scan_op
from torch.autograd.function import Function
from torch.compiler import is_dynamo_compiling
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

_NEVER = -1e30
"""The logarithm of what does not happen; with -inf gradients would be no numbers."""

_NONE, _MEAN = 0, 1

_TWICE: ContextVar[bool] = ContextVar("twice", default=False)

_SELECTING = (Tensor.masked_select, torch.masked_select)


@contextmanager
def twice_differentiable() -> Iterator[None]:
    """Let gradients of losses have gradients, for which their loops are written out in training."""
    before = _TWICE.set(True)
    try:
        yield
    finally:
        _TWICE.reset(before)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: int = _NONE,
    zero_infinity: bool = False,
    there: Tensor | None = None,
) -> Tensor:
    """Return -log p(target), for each of a batch, or its mean by label, or its sum.

    Shapes: `log_probs` [steps, batch, classes] or [steps, classes], `targets` [batch, labels] or
    all in a row, lengths [batch] or a scalar. Where no alignment is long enough the loss is
    infinite, or 0 with `zero_infinity`, and has no gradient. Where a length is larger than what is
    there it is no number; PyTorch raises an error, and so does this for lengths that are numbers of
    Python: `ValueError`, as for a blank that is no class. `there` is how many count of `targets`
    that are in a row; all, if it is not given.
    """
    alone = log_probs.dim() == 2
    if not 0 <= blank < log_probs.shape[-1]:
        raise ValueError(f"ctc_loss got {blank} for the blank of {log_probs.shape[-1]} classes")
    scores = log_probs.unsqueeze(1) if alone else log_probs
    in_a_row = targets.dim() == 1 and not alone
    batch, most = scores.shape[1], targets.shape[-1]
    _require_lengths("input", input_lengths, batch, scores.shape[0])
    _require_lengths("target", target_lengths, batch, most, together=in_a_row)
    steps, labels = _lengths(scores, input_lengths), _lengths(scores, target_lengths)
    ends = labels.cumsum(0) if in_a_row else labels
    is_there = (steps >= 0) & (steps <= scores.shape[0]) & (labels >= 0)
    is_there &= ends <= (most if there is None else there)
    limit = scores.shape[0]  # more labels have no alignment
    rows = targets.reshape(1, -1) if alone else _padded(targets, target_lengths, labels, limit)
    known = torch.arange(rows.shape[1], device=rows.device) < labels.unsqueeze(1)
    places = _with_blanks(torch.where(known, rows.long(), blank), blank)
    total = _total(scores, places, blank, steps, labels)
    never = total < _NEVER / 2
    loss = torch.where(never, 0.0 if zero_infinity else torch.inf, -total)
    loss = torch.where(is_there, loss, torch.nan)
    if reduction == _MEAN:
        return (loss / labels.clamp(min=1)).mean()
    if reduction != _NONE:
        return loss.sum()
    return loss.squeeze(0) if alone else loss


def _require_lengths(
    name: str, given: Tensor | Sequence[int], batch: int, most: int, *, together: bool = False
) -> None:
    """Raise `ValueError` for lengths of which PyTorch takes none, as far as they are known.

    They may be up to `most`, or `together` so.
    """
    count = given.numel() if isinstance(given, Tensor) else len(given)
    if {type(count), type(batch)} == {int} and count != batch:  # open sizes are no `int`
        raise ValueError(f"ctc_loss got {count} {name}_lengths for a batch of {batch}")
    known = () if isinstance(given, Tensor) else tuple(given)
    for length in (*known, *((sum(known),) if together else ())):
        if not 0 <= length <= most:
            raise ValueError(f"ctc_loss got {name}_lengths of {length} where there are {most}")


def _lengths(scores: Tensor, given: Tensor | Sequence[int]) -> Tensor:
    lengths = given if isinstance(given, Tensor) else torch.tensor(given)
    return lengths.to(torch.int64).reshape(-1).expand(scores.shape[1])


def _padded(targets: Tensor, given: Tensor | Sequence[int], labels: Tensor, limit: int) -> Tensor:
    """Return a row of targets for each of the batch; what is behind its end counts for nothing.

    Those that are all in a row get up to `limit` of them.
    """
    if targets.dim() == 2:
        return targets
    most = min(len(targets) if isinstance(given, Tensor) else max(given, default=0), limit)
    at = torch.arange(most, device=targets.device) + (labels.cumsum(0) - labels).unsqueeze(1)
    return targets[at.clamp(max=max(len(targets) - 1, 0))]


def _with_blanks(rows: Tensor, blank: int) -> Tensor:
    """Return blank, l1, blank, l2, ..., blank: [batch, 2 * labels + 1]."""
    pairs = torch.stack((torch.full_like(rows, blank), rows), 2).flatten(1)
    return functional.pad(pairs, (0, 1), value=blank)


def _total(scores: Tensor, places: Tensor, blank: int, steps: Tensor, labels: Tensor) -> Tensor:
    """Return the log of the probability of each of the batch."""
    found = scores.gather(2, places.expand(scores.shape[0], -1, -1)).clamp(min=_NEVER)
    place = torch.arange(places.shape[1], device=places.device)
    ends = (place == 2 * labels.unsqueeze(1)) | (place == 2 * labels.unsqueeze(1) - 1)
    jumps = (places != blank) & (places != _later(places, 2, blank))
    total: Tensor = _Alignments.apply(found, jumps, ends, steps)  # type: ignore[no-untyped-call]
    return torch.where(steps > 0, total, torch.where(labels > 0, _NEVER, 0.0).to(total.dtype))


class _Alignments(Function):
    """The log of the probability of all ways through the places, from the first to `ends`.

    Each direction is one loop, however many steps there are: forward (alpha) and, for the gradient,
    back (beta). Of p, exp(alpha_t(s) + beta_t(s)) goes through place s at step t, and this share is
    by what log p changes with the log of the probability there.

    Shapes: `found` [steps, batch, places], `jumps` and `ends` [batch, places], `steps` [batch].
    """

    @staticmethod
    def forward(ctx: Any, found: Tensor, jumps: Tensor, ends: Tensor, steps: Tensor) -> Tensor:
        found = found if _TWICE.get() else found.detach()  # what has a gradient is written out
        counts = _counts(found, steps)
        start = functional.pad(torch.full_like(found[0, :, 1:], _NEVER), (1, 0))

        def step(before: Tensor, here: Tensor, is_there: Tensor, jumps: Tensor) -> list[Tensor]:
            ways = (before, _later(before, 1), torch.where(jumps, _later(before, 2), _NEVER))
            ahead = torch.logsumexp(torch.stack(ways), 0) + here
            after = torch.where(is_there, ahead, before)
            return [after, after.clone()]

        last, alphas = scan_op(step, [start], [found, counts], (jumps,))
        total = torch.logsumexp(torch.where(ends, last, _NEVER), 1)
        ctx.save_for_backward(found, jumps, ends, counts, alphas, total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        found, jumps, ends, counts, alphas, total = ctx.saved_tensors
        start = torch.where(ends, 0.0, _NEVER).to(found.dtype)

        def step(after: Tensor, here: Tensor, is_there: Tensor, jumps: Tensor) -> list[Tensor]:
            ahead = after + here
            jumped = _earlier(torch.where(jumps, ahead, _NEVER), 2)
            before = torch.logsumexp(torch.stack((ahead, _earlier(ahead, 1), jumped)), 0)
            return [torch.where(is_there, before, after), after.clone()]

        _, betas = scan_op(step, [start], [found.flip(0), counts.flip(0)], (jumps,))
        ways = alphas + betas.flip(0) - total.unsqueeze(1)
        among = counts & (total > _NEVER / 2).unsqueeze(1)
        shares = torch.where(among, torch.where(among, ways, _NEVER).exp(), 0.0)
        return gradient.unsqueeze(1) * shares, None, None, None


def _counts(found: Tensor, steps: Tensor) -> Tensor:
    """Return whether a step is one of those of each of the batch: [steps, batch, 1]."""
    numbers = torch.arange(found.shape[0], device=found.device).reshape(-1, 1, 1)
    return numbers < steps.unsqueeze(1)


def _later(row: Tensor, by: int, value: float = _NEVER) -> Tensor:
    """Return `row` [batch, places], moved to places `by` later; in front comes `value`."""
    return functional.pad(row, (by, 0), value=value)[:, : row.shape[1]]


def _earlier(row: Tensor, by: int) -> Tensor:
    return functional.pad(row, (0, by), value=_NEVER)[:, by:]


class SelectedTargets(TorchFunctionMode):
    """Remembers what masks select meanwhile, for losses to which it is all targets in a row.

    What `masked_select` gives is written as `x[mask]`, of which torch knows that one mask selects
    as many of one tensor as of another.
    """

    def __init__(self) -> None:
        super().__init__()
        self._selected = WeakIdKeyDictionary()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call an operator."""
        if is_dynamo_compiling():  # which records the bodies of loops and choices, and this too
            return func(*args, **(kwargs or {}))
        if func in _SELECTING and not kwargs and _is_mask_of(*args):
            func = Tensor.__getitem__
        result = func(*args, **(kwargs or {}))
        if func is Tensor.__getitem__ and _is_mask_of(*args) and not args[0].is_floating_point():
            self._selected[result] = *args, _versions(result, *args)
        return result

    def ctc_loss(self, log_probs: Tensor, targets: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return `ctc_loss` of the same."""
        if log_probs.dim() == 2 or targets not in self._selected:
            return ctc_loss(log_probs, targets, *args, **kwargs)
        source, mask, versions = self._selected[targets]
        if versions != _versions(targets, source, mask):
            return ctc_loss(log_probs, targets, *args, **kwargs)
        row, there = _all_in_a_row(source, mask)
        return ctc_loss(log_probs, row, *args, **{**kwargs, "there": there})


def _is_mask_of(source: object, mask: object) -> bool:
    """Tell whether `mask` selects elements of `source`, one by one."""
    return (
        isinstance(source, Tensor)
        and isinstance(mask, Tensor)
        and mask.dtype == torch.bool
        and str(mask.shape) == str(source.shape)  # to compare sizes of values is refused
    )


def _versions(*given: Tensor) -> tuple[int, ...]:
    return tuple(one._version for one in given)


def _all_in_a_row(source: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the elements of `source`, those that `mask` selects in front, and how many these are.

    Each goes to a place of its own, so that none is written twice.
    """
    chosen, elements = mask.flatten(), source.flatten()
    there, up_to = chosen.sum(), chosen.cumsum(0)
    behind = there + torch.arange(len(elements), device=elements.device) - up_to
    places = torch.where(chosen, up_to - 1, behind)
    return torch.zeros_like(elements).scatter(0, places, elements), there
