"""What the hyperparameters of a program may be, by the options that they are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

from .arguments import Kind


def _between(words: str, least: float, limit: float) -> Kind:
    """Return the kind of numbers that are at least `least` and below `limit`."""
    return Kind(words, lambda value: least <= cast(float, value) < limit)


_SEEDS = 1 << 53
"""Where whole numbers end, on either side of 0, that float64 tells apart: seeds are kept in it."""
_ROUNDING = 1e-12
"""What rounding may leave below 0: a schedule of PyTorch to a rate of 0 may end at -4e-18."""
_FROM_ZERO = "a finite number from 0 on"
_NOT_NEGATIVE = _between(_FROM_ZERO, 0.0, math.inf)
_SCHEDULED = _between(_FROM_ZERO, -_ROUNDING, math.inf)
_DECAY = _between("a number from 0 to below 1", 0.0, 1.0)

OF_OPTIMIZERS: Mapping[str, Kind] = {
    "lr": _SCHEDULED,
    "momentum": _SCHEDULED,
    "dampening": _NOT_NEGATIVE,
    "weight_decay": _SCHEDULED,
    "lr_decay": _NOT_NEGATIVE,
    "initial_accumulator_value": _NOT_NEGATIVE,
    "eps": _NOT_NEGATIVE,
    "trust": _NOT_NEGATIVE,
    "min_trust": _NOT_NEGATIVE,
    "max_trust": _NOT_NEGATIVE,
    "beta1": _DECAY,
    "beta2": _DECAY,
    "alpha": _DECAY,
}
"""What PyTorch allows when an optimizer is made, and its schedules write; numbers are asked."""

KINDS: Mapping[str, Kind] = {
    **OF_OPTIMIZERS,
    "max_grad_norm": Kind("a finite number above 0", lambda v: 0.0 < cast(float, v) < math.inf),
    "p": Kind("a probability, 0 to 1,", lambda v: 0.0 <= cast(float, v) <= 1.0),
    "seed": Kind(
        "a whole number between -2**53 and 2**53",
        lambda value: cast(float, value).is_integer() and abs(cast(float, value)) < _SEEDS,
    ),
}
"""All hyperparameters that cannot be any finite number."""
