"""Modules that take derivatives inside forward, beside what PyTorch makes of them in float64."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from near import assert_near, exactly
from own_gradient_steps import stepped
from torch import Tensor, nn

import sambac
import sambarun

Function = Callable[[Tensor, Tensor], Tensor]
"""What gives a number of a matrix [4, 4], which is to be trained, and an input [3, 4]."""

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(7))


class Taking(nn.Module):
    """A function of a matrix and an input, which it may differentiate by."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(0.4 * torch.randn(4, 4, generator=torch.Generator()))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.weight, x)


def slope(y: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of the sum of `y`, which can be differentiated itself."""
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


def require_values_of_torch(module: nn.Module, x: Tensor = X) -> None:
    """Require what a module gives as it evaluates."""
    module.eval()
    with sambarun.load(sambac.compile(module, inputs=(x.clone(),))) as executable:
        (found,) = executable.run({"x": x.numpy()}).values()
    assert_near(found, exactly(module)(exactly(x)).detach().numpy())


def require_steps_of_torch(module: nn.Module, path: Path, x: Tensor = X) -> None:
    """Require the loss that a module gives, and the gradients of a step."""
    module.train()
    found, loss = stepped(module, x.clone(), path)
    exact = exactly(module)
    expected = exact(exactly(x))
    expected.backward()
    assert_near(loss, expected.detach().numpy())
    for name, parameter in exact.named_parameters():
        size = float(parameter.detach().abs().max())
        assert_near(found[name], parameter.grad.numpy(), 1e-4, size=0.1 * size, what=name)
