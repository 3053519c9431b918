"""Precisions in whole numbers of few bits: what each is, and which options belong to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Observer = Literal[
    "minmax",
    "average",
    "percentile",
    "entropy",
    "histogram",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "HistogramObserver",
]
"""What finds the range of numbers in batches of inputs."""

DEFAULT_BLOCK = 64
BLOCKS = (32, 64, 128)
"""How many weights may share a scale, where weights alone are quantised."""


@dataclass(frozen=True)
class Quantized:
    """What a precision quantises: weights in so many `bits`, and unless `weights_only` data too."""

    bits: int
    weights_only: bool = False


QUANTIZED: Mapping[str, Quantized] = MappingProxyType({
    "int8": Quantized(8),
    "int8-weights": Quantized(8, weights_only=True),
    "int4-weights": Quantized(4, weights_only=True),
})  # fmt: skip
OF_QUANTIZED = ("weight_block", "calibrate", "observer", "max_error", "expect")
"""Options that are of use with these precisions alone."""

_OF_WEIGHTS = " or ".join(name for name, each in QUANTIZED.items() if each.weights_only)


def misplaced(precision: str, given: Mapping[str, object]) -> Iterator[str]:
    """Yield what is wrong with `precision` beside the other options of a compilation, by name."""
    chosen = QUANTIZED.get(precision)
    if chosen is not None and given["train"]:
        yield (
            f"precision (--precision) {precision} is for inference; train in float32, mixed or "
            "bfloat16, and compile what was trained again without train (--train)."
        )
    if chosen is not None and given["number_rules"]:
        yield (
            f"number_rules (--number-rules) are of floating-point precisions, and the precision "
            f"is {precision}; drop one of them."
        )
    yield from _lonely(chosen, given)
    if chosen is not None and chosen.weights_only and given["observer"] is not None:
        yield (
            f"observer (--observer) finds ranges of data, and the precision {precision} quantises "
            "weights alone; drop it, or choose int8 (--precision)."
        )
    block = given["weight_block"]
    if block is not None and block not in BLOCKS:
        yield f"weight_block (--weight-block) is {block}; choose {_either(BLOCKS)}."
    elif block is not None and not (chosen and chosen.weights_only):
        yield (
            f"weight_block (--weight-block) is of use with the precision {_OF_WEIGHTS} "
            "(--precision); choose one, or drop it."
        )


def _lonely(chosen: Quantized | None, given: Mapping[str, object]) -> Iterator[str]:
    """Yield which options want another one that is not given."""
    wants = {
        "calibrate (--calibrate)": ("calibrate", chosen, f"a precision of {', '.join(QUANTIZED)}"),
        "observer (--observer)": ("observer", given["calibrate"], "calibrate (--calibrate)"),
        "max_error (--max-error)": ("max_error", given["calibrate"], "calibrate (--calibrate)"),
        "expect (--expect)": ("expect", given["calibrate"], "calibrate (--calibrate)"),
    }
    for spelled, (name, other, missing) in wants.items():
        if given[name] is not None and other is None:
            yield f"{spelled} is of use with {missing} alone; give that, or drop it."


def _either(numbers: tuple[int, ...]) -> str:
    *others, last = map(str, numbers)
    return f"{', '.join(others)} or {last}"
