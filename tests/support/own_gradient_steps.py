"""What a training step takes off parameters, around a function with gradients of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import sambac
import sambarun

Body = Callable[[Tensor, Tensor, Tensor], Tensor]


class Between(nn.Module):
    """A body between two layers, with a matrix and a row to use."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        self.before, self.behind, self.body = nn.Linear(4, 6), nn.Linear(6, 3), body
        self.weight, self.bias = nn.Parameter(torch.randn(6, 6)), nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor) -> Tensor:
        unread = 0 * (self.weight.sum() + self.bias.sum())
        return (
            self.behind(self.body(self.before(x), self.weight, self.bias)).square().mean() + unread
        )


def stepped(
    module: nn.Module, x: Tensor, path: Path, **options: Any
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the gradients that a step of rate 1 takes off each parameter, and the loss."""
    before = {name: one.detach().numpy().copy() for name, one in module.named_parameters()}
    chosen = sambac.CompileOptions(train=True, optimizers=(sambac.SGD(lr=1.0),), **options)
    sambac.compile(module, chosen, inputs=(x,)).save(path)
    with sambarun.load(path) as executable:
        (loss,) = executable.step({"x": x.numpy()}).values()
        after = executable.read(*before)
    return {name: before[name] - after[name] for name in before}, np.asarray(loss)


def require_gradients_of_torch(module: nn.Module, x: Tensor, path: Path) -> None:
    """Require the loss of a module, and the gradients of a step, to be those of PyTorch.

    Of what is rounded inside, float32 and float64 may be a step apart: float32 is the judge.
    """
    found, loss = stepped(module, x, path)
    expected = module(x)
    expected.backward()
    np.testing.assert_allclose(loss, expected.detach().numpy(), rtol=1e-5)
    for at, parameter in module.named_parameters():
        assert parameter.grad is not None
        size = max(float(parameter.detach().abs().max()), float(parameter.grad.abs().max()))
        np.testing.assert_allclose(found[at], parameter.grad.numpy(), rtol=1e-4, atol=2e-6 * size)
