"""Comparing what the device computed with what the host computed."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from pef.files import write_text
from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.arguments.kinds import LIMIT
from sambaflow.samba.tensors.tensor import to_torch

__all__ = ["assert_close"]

_COARSE = frozenset({torch.bfloat16, torch.float16})
_BINS = 20
_BAR = 50
_FOLDER = "assert_close"


@checked(actual=None, expected=None, threshold=LIMIT.or_none(), rtol=LIMIT)
def assert_close(
    actual: torch.Tensor | None,
    expected: torch.Tensor | None,
    name: str = "tensor",
    threshold: float | None = None,
    rtol: float = 0.0,
    visualize: bool = False,
) -> None:
    """Check that `|actual - expected| <= threshold + rtol * |expected|` for every element.

    By default `threshold` is 1e-3, and 2e-2 if one of the tensors has elements of 16 bits. Equal
    infinities are close, and so are two NaNs. With `visualize` a histogram of the differences is
    written to `assert_close/<name>.txt` in the working directory, whatever the result.

    Raises AssertionError that says how many elements differ too much, and where and what the worst
    one is; TypeError where something is no tensor, such as a gradient that nobody computed.
    """
    if not isinstance(actual, torch.Tensor) or not isinstance(expected, torch.Tensor):
        kinds = f"{type(actual).__name__} and {type(expected).__name__}"
        raise TypeError(f"{name}: {kinds} were given to compare, expected two tensors")
    coarse = actual.dtype in _COARSE or expected.dtype in _COARSE
    limit = (2e-2 if coarse else 1e-3) if threshold is None else threshold
    if actual.shape != expected.shape:
        raise AssertionError(
            f"{name}: shapes differ, {list(actual.shape)} and {list(expected.shape)}"
        )
    left, right = (to_torch(tensor).detach().cpu().double() for tensor in (actual, expected))
    gap = _gap(left, right)
    if visualize:
        _write_histogram(name, gap)
    far = ~(gap <= limit + rtol * right.abs().nan_to_num(posinf=0.0))
    if far.any():
        raise AssertionError(
            f"{name}: {_shares(far)} differ by more than {limit:g}"
            f"{f' + {rtol:g} * |expected|' if rtol else ''}; {_worst(left, right, gap)}"
        )


def _gap(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return |left - right|: 0 where both are the same infinity or NaN, inf where one is."""
    same = (left == right) | (left.isnan() & right.isnan())
    return torch.where(same, 0.0, (left - right).abs().nan_to_num(nan=torch.inf))


def _shares(far: torch.Tensor) -> str:
    count, total = int(far.sum()), far.numel()
    return f"{count} of {total} elements ({100 * count / total:.3g} %)"


def _worst(left: torch.Tensor, right: torch.Tensor, gap: torch.Tensor) -> str:
    place = int(gap.argmax())
    index = [int(axis) for axis in torch.unravel_index(torch.tensor(place), gap.shape)]
    values = left.flatten()[place].item(), right.flatten()[place].item()
    return f"the most at {index}: {values[0]:.6g}, expected {values[1]:.6g}"


def _write_histogram(name: str, gap: torch.Tensor) -> None:
    """Write how many elements differ by how much, as bars of text."""
    path = Path(_FOLDER) / f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)}.txt"
    path.parent.mkdir(exist_ok=True)
    write_text(path, "\n".join([f"{name}: {gap.numel()} differences", *_bars(gap)]) + "\n")


def _bars(gap: torch.Tensor) -> list[str]:
    known = gap[gap.isfinite()]
    if not len(known):
        return ["none of them finite"]
    top = float(known.max()) or 1.0
    counts = torch.histc(known, _BINS, 0.0, top).long().tolist()
    most = max(counts)
    lines = [
        f"{top * i / _BINS:10.3e} .. {top * (i + 1) / _BINS:10.3e}  {count:9d}  "
        f"{'#' * -(-count * _BAR // most)}".rstrip()
        for i, count in enumerate(counts)
    ]
    lost = gap.numel() - known.numel()
    return [*lines, f"not finite: {lost}"] if lost else lines
