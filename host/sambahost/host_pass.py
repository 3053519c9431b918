"""Passes of torch on the host: forward, and backward from gradients that come later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from .samples import Gradients, Tensors


@dataclass(frozen=True)
class HostPass:
    """What went forward: inputs and outputs, with torch's graph between them."""

    inputs: Tensors
    outputs: Tensors

    @classmethod
    def of(
        cls, function: Callable[[Tensors], Tensors], given: Sequence[torch.Tensor], wanted: bool
    ) -> HostPass:
        """Run `function`, in whatever mode the caller is; inputs get gradients if `wanted`."""
        with torch.inference_mode(False), torch.enable_grad():
            inputs = tuple(
                tensor.detach().requires_grad_(wanted and tensor.is_floating_point())
                for tensor in given
            )
            # What works in place may not on what gets a gradient.
            return cls(inputs, function(tuple(t.clone() if wanted else t for t in inputs)))

    def backward(self, starts: Gradients | None, retain_graph: bool = False) -> Gradients:
        """Add up the gradients of parameters, and return those of inputs.

        `starts` are those of outputs; without them losses start from ones.
        """
        ones = tuple(torch.ones_like(output) for output in self.outputs)
        pairs = [
            (output, start)
            for output, start in zip(self.outputs, starts or ones, strict=True)
            if output.requires_grad and start is not None
        ]
        if pairs:
            outputs, gradients = zip(*pairs, strict=True)
            torch.autograd.backward(outputs, gradients, retain_graph=retain_graph)
        return tuple(tensor.grad for tensor in self.inputs)
