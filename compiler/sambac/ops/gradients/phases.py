"""The gradient of the image of a convolution with strides, in phases.

    dx[n, c, at(p, t)] += sum over o of w[o, c, t] * signal[n, o, p]

With a stride of s the places r, r + s, r + 2 s, ... of an image see every s-th tap alone. So what
they get is a data gradient with a stride of one, of fewer taps, for each remainder r of each axis.
Nothing is multiplied by zeros, there are no columns, and hosts may have kernels for stride one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, prod

import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of

from .convolution_sizes import Convolution, in_blocks
from .formulations import copying
from .rules import cut, reshape
from .windows import Window

_MOST_PHASES = 16
_PHASE = 10_000  # for the operators of a phase
_STRIDED = 1.0  # for each element of filters whose taps are picked one by one
_BLOCK = 16  # elements that lie side by side where they are interleaved

Solve = Callable[..., ir.Value]
"""Puts the data gradient of a phase, of its sizes, the signal, its filters and the biases."""


@dataclass(frozen=True)
class Phase:
    """The places of an image with the same remainders, and the taps that they see.

    Of each axis these are the tap `firsts`, and every one that is a stride behind.
    """

    firsts: tuple[int, ...]
    window: Window

    @classmethod
    def of(cls, window: Window, remainders: tuple[int, ...]) -> Phase:
        """Return the phase of `window` with these remainders."""
        pairs = list(zip(remainders, window.begins, window.strides, strict=True))
        firsts = tuple((rest + begin) % stride for rest, begin, stride in pairs)
        begins = tuple((rest + begin) // stride for rest, begin, stride in pairs)
        taps = zip(window.kernel, firsts, window.strides, strict=True)
        places = zip(window.image, window.strides, strict=True)
        one = (1,) * len(firsts)
        seen = replace(
            window,
            kernel=tuple(ceil((size - first) / stride) for size, first, stride in taps),
            strides=one,
            dilations=one,
            begins=begins,
            image=tuple(ceil(size / stride) for size, stride in places),
        )
        return cls(firsts, seen)

    @property
    def margins(self) -> list[int]:
        """How much more of the signal its taps see, before and behind, than there is."""
        window = self.window
        pairs = zip(window.kernel, window.begins, strict=True)
        return [*(size - 1 - begin for size, begin in pairs), *(-rest for rest in window.rests)]

    def filters(self, b: Editor, window: Window, filters: ir.Value) -> ir.Value:
        """Return the filters of its taps, of all `filters` [O, C, *kernel]."""
        axes = list(range(2, 2 + len(self.firsts)))
        ends, steps = list(window.kernel), list(window.strides)
        return b.op("Slice", filters, list(self.firsts), ends, axes, steps)


def phases_of(window: Window) -> list[Phase]:
    """Return all phases, those of the last axis side by side."""
    every = product(*(range(stride) for stride in window.strides))
    return [Phase.of(window, remainders) for remainders in every]


def fits_phases(of: Convolution) -> bool:
    """Whether there are phases, in which all places see taps of the signal or of its margins."""
    window = of.window
    if not 1 < prod(window.strides) <= _MOST_PHASES or set(window.dilations) != {1}:
        return False
    if not (of.group == 1 or of.depthwise) or window.tiles:
        return False
    wide = all(size >= step for size, step in zip(window.kernel, window.strides, strict=True))
    return wide and all(min(phase.margins) >= 0 for phase in phases_of(window))


def cost_of_phases(of: Convolution, cost: Callable[[Convolution], float]) -> float:
    """Return the cost of all phases, of which one takes `cost`, and of interleaving them."""
    phases = phases_of(of.window)
    parts = sum(cost(replace(of, window=phase.window)) for phase in phases)
    moves = sum(stride > 1 for stride in of.window.strides)
    moved = copying(of.batch * of.channels * prod(of.window.image), _BLOCK)
    picked = 0 if in_blocks(of) else _STRIDED * of.size
    return parts + moves * moved + picked + _PHASE * len(phases)


def in_phases(
    b: Editor, of: Convolution, solve: Solve, operands: Sequence[ir.Value | None]
) -> ir.Value:
    """Return dx [N, C, *image] of signal, filters and biases: phases by `solve`, interleaved."""
    signal, filters, bias = operands
    assert filters is not None
    parts = []
    for phase in phases_of(of.window):
        some = phase.filters(b, of.window, filters)
        parts.append(solve(b, replace(of, window=phase.window), signal, some, bias))
    whole = _interleaved(b, parts, of.window.strides)
    return cut(b, whole, {axis: (0, size) for axis, size in enumerate(of.window.image, 2)})


def _interleaved(b: Editor, parts: Sequence[ir.Value], strides: Sequence[int]) -> ir.Value:
    """Return [N, C, *image] of [N, C, *places] for each phase, joined from the last axis on.

    They are images all the while, which may lie in blocks of channels.
    """
    batch, channels, *places = shape_of(parts[0])
    sizes = [size * stride for size, stride in zip(places, strides, strict=True)]
    for axis in reversed(range(len(places))):
        if strides[axis] == 1:
            continue
        rows, row = prod(places[: axis + 1]), prod(sizes[axis + 1 :])
        flat = [reshape(b, part, (batch, channels, rows, row)) for part in parts]
        groups = [flat[i : i + strides[axis]] for i in range(0, len(flat), strides[axis])]
        parts = [b.op("Concat", *group, axis=3) for group in groups]
    return reshape(b, parts[0], (batch, channels, *sizes))
