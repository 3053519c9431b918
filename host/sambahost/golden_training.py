"""Training by torch, sample after sample, beside a device, to compare with what that trains.

Optimizers have their formulas here once more, one weight at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import sambac

from .compiled_step import AnyPart
from .errors import HostError
from .golden import evaluated_onnx
from .host_trainer import HostPass
from .models import detached, in_mode
from .onnx_part import OnnxPart
from .samples import Gradients, Tensors, leaves
from .trained_values import TrainedValues


class GoldenTrainer:
    """Trains `part` on values of its own, which begin as copies of the module's.

    `trains` are the paths of what has gradients; these add up until they are zeroed.
    """

    def __init__(self, part: nn.Module, trains: Iterable[str]) -> None:
        self._part = part
        self._trained = tuple(trains)
        self._values: dict[str, Tensor] = {
            path: nn.Parameter(tensor.detach().clone(), requires_grad=path in self._trained)
            for path, tensor in part.named_parameters()
        }
        self._values.update((path, tensor.clone()) for path, tensor in part.named_buffers())
        self._passed: deque[list[HostPass]] = deque()

    def forward(self, samples: Iterable[Sequence[Tensor]]) -> list[Tensors]:
        """Return the outputs for each sample; a backward pass of all of them may follow."""
        with in_mode(self._part, training=True):
            passed = [HostPass.of(self._run, sample, wanted=True) for sample in samples]
        self._passed.append(passed)
        return [tuple(output.detach() for output in each.outputs) for each in passed]

    def backward(self, starts: Iterable[Gradients | None]) -> list[Gradients]:
        """Return the gradients of what each sample of the oldest pass was, and add up the others.

        `starts` has those of the outputs for each sample, or None for ones.
        """
        passed = self._passed.popleft()
        return [each.backward(given) for each, given in zip(passed, starts, strict=True)]

    def gradients(self) -> Mapping[str, Tensor]:
        """Return the gradients so far, by path, of what has some."""
        found = ((path, self._values[path].grad) for path in self._trained)
        return {path: gradient for path, gradient in found if gradient is not None}

    def zero(self) -> None:
        """Let gradients add up from zero."""
        for path in self._trained:
            self._values[path].grad = None

    def value(self, path: str) -> Tensor:
        """Return what is trained here at `path`."""
        return self._values[path].detach()

    def write(self, path: str, value: Tensor) -> None:
        """Overwrite what is trained here at `path`."""
        self.value(path).copy_(value)

    def _run(self, given: Tensors) -> Tensors:
        found: Tensors = torch.func.functional_call(self._part, self._values, given)
        return found


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


class Distance(torch.nn.Module):
    """The mean distance of all outputs from their targets, times a factor."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self._factor = factor

    def forward(self, outputs: object, targets: object) -> torch.Tensor:
        """Return the loss; several outputs are added up."""
        pairs = zip(leaves(outputs, HostError), leaves(targets, HostError), strict=True)
        distances = [torch.nn.functional.l1_loss(found, wanted) for found, wanted in pairs]
        return self._factor * torch.stack(distances).sum()


def evaluated(
    parts: Sequence[AnyPart], sample: Sequence[torch.Tensor], held: TrainedValues
) -> tuple[torch.Tensor, ...]:
    """Return what torch and the evaluator of ONNX give for a sample, with values of a device."""
    found = tuple(sample)
    for part in parts:
        if isinstance(part, OnnxPart):
            found = evaluated_onnx(part.valued(held.values()), found)
            continue
        with held.within(part), in_mode(part, training=False), torch.enable_grad():
            found = detached(part(*found))
    return found
