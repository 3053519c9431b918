"""Connectionist temporal classification in operators that can be recorded.

PyTorch's own reads lengths as numbers of Python while it is recorded, and the size of what it keeps
for the gradient depends on them. Here lengths may be inputs:

    p(target) is the sum over all alignments of targets to steps, with blanks between them, computed
    step by step (Graves et al., 2006): alpha_t(s) = the log of the probability that the first t
    steps end in place s of blank, l1, blank, l2, ..., blank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

_NEVER = -1e30
"""The logarithm of what does not happen; with -inf gradients would be no numbers."""

_NONE, _MEAN = 0, 1

_SELECTING = (Tensor.masked_select, torch.masked_select)


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
    _require_lengths("input", input_lengths, batch, len(scores))
    _require_lengths("target", target_lengths, batch, most, together=in_a_row)
    steps, labels = _lengths(scores, input_lengths), _lengths(scores, target_lengths)
    ends = labels.cumsum(0) if in_a_row else labels
    is_there = (steps >= 0) & (steps <= len(scores)) & (labels >= 0)
    is_there &= ends <= (most if there is None else there)
    limit = len(scores)  # more labels have no alignment
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
    width = places.shape[1]
    found = scores.gather(2, places.expand(len(scores), -1, -1)).clamp(min=_NEVER)
    place = torch.arange(width, device=places.device)
    before = functional.pad(places, (2, 0), value=blank)[:, :width]
    jumps = (places != blank) & (places != before)
    alpha = torch.where(place < 2, found[0], _NEVER)
    for step in range(1, len(scores)):
        ways = torch.stack(
            (
                alpha,
                functional.pad(alpha, (1, 0), value=_NEVER)[:, :width],
                torch.where(jumps, functional.pad(alpha, (2, 0), value=_NEVER)[:, :width], _NEVER),
            )
        )
        ahead = torch.logsumexp(ways, 0) + found[step]
        alpha = torch.where((step < steps).unsqueeze(1), ahead, alpha)
    ends = (place == 2 * labels.unsqueeze(1)) | (place == 2 * labels.unsqueeze(1) - 1)
    total = torch.logsumexp(torch.where(ends, alpha, _NEVER), 1)
    return torch.where(steps > 0, total, torch.where(labels > 0, _NEVER, 0.0).to(total.dtype))


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
