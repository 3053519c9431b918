"""The formulas of optimizers, one weight at a time, to compare with what a device makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

import sambac


@dataclass
class _Averages:
    """Moving averages of a gradient and of its square, and how often they moved."""

    first: Tensor
    second: Tensor
    steps: int = 0

    def direction(self, g: Tensor, by: sambac.Adam | sambac.LAMB) -> Tensor:
        """Move with `g`, and return m / (sqrt(v) + eps), corrected if it is asked for."""
        self.steps += 1
        self.first = by.beta1 * self.first + (1 - by.beta1) * g
        self.second = by.beta2 * self.second + (1 - by.beta2) * g * g
        m, v = self.first, self.second
        if by.bias_correction:
            m, v = m / (1 - by.beta1**self.steps), v / (1 - by.beta2**self.steps)
        return m / (v.sqrt() + by.eps)


def _sgd(w: Tensor, g: Tensor, rate: float, by: sambac.SGD, state: _Averages) -> Tensor:
    return rate * g


def _adam(w: Tensor, g: Tensor, rate: float, by: sambac.Adam, state: _Averages) -> Tensor:
    return rate * state.direction(g + by.weight_decay * w, by)


def _adamw(w: Tensor, g: Tensor, rate: float, by: sambac.AdamW, state: _Averages) -> Tensor:
    return rate * (state.direction(g, by) + by.weight_decay * w)


def _lamb(w: Tensor, g: Tensor, rate: float, by: sambac.LAMB, state: _Averages) -> Tensor:
    r = state.direction(g, by) + by.weight_decay * w
    ratio = (w.norm() / r.norm()).clamp(by.min_trust, by.max_trust or None)
    return rate * r * (ratio if w.any() and r.any() else 1.0)


def _lars(w: Tensor, g: Tensor, rate: float, by: sambac.LARS, state: _Averages) -> Tensor:
    ratio = by.trust * w.norm() / (g.norm() + by.weight_decay * w.norm() + by.eps)
    scale = rate * (ratio if w.any() and g.any() else 1.0)
    state.first = by.momentum * state.first + scale * (g + by.weight_decay * w)
    return state.first


_STEPS: Mapping[type[sambac.Optimizer], Callable[..., Tensor]] = {
    sambac.SGD: _sgd,
    sambac.Adam: _adam,
    sambac.AdamW: _adamw,
    sambac.LAMB: _lamb,
    sambac.LARS: _lars,
}
"""What weights lose in a step."""


class GoldenOptimizer:
    """Steps weights by the formula of an optimizer of these: SGD, Adam, AdamW, LAMB, LARS."""

    def __init__(self, settings: sambac.Optimizer) -> None:
        self._settings = settings
        self._states: dict[str, _Averages] = {}

    def stepped(self, name: str, weight: Tensor, gradient: Tensor, rate: float) -> Tensor:
        """Return what `weight`, called `name`, is after its next step."""
        w, g = weight.detach(), gradient.detach()
        zeros = torch.zeros_like(w)
        state = self._states.setdefault(name, _Averages(zeros, zeros))
        return w - _STEPS[type(self._settings)](w, g, rate, self._settings, state)
