"""Training by torch, sample after sample, beside a device, to compare with what that trains."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from .host_pass import HostPass
from .models import in_mode
from .samples import Gradients, Tensors


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
