"""Modules that take derivatives inside forward, beside what PyTorch makes of them in float64."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from near import TOLERANCE, assert_near, exactly
from own_gradient_steps import stepped
from torch import Tensor, nn

import sambac
import sambarun

Function = Callable[[Tensor, Tensor], Tensor]
"""What gives a number of a matrix [4, 4], which is to be trained, and an input [3, 4]."""

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(7))

_ROUNDING = torch.finfo(torch.float32).eps / 2


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
    exact = exactly(module)(exactly(x)).detach().numpy()
    assert_near(_of_rounded(module, x).numpy(), exact, TOLERANCE / 4, what="ill-conditioned test")
    assert_near(found, exact)


def _of_rounded(module: nn.Module, x: Tensor) -> Tensor:
    """Return what a module gives in float64 once each number that it reads is off by a rounding.

    Where that alone uses up the tolerance, the processor decides whether a test passes.
    """
    draws = torch.Generator().manual_seed(0)
    moved, x = exactly(module), exactly(x)
    with torch.no_grad():
        for value in (*moved.parameters(), x):
            signs = 2 * torch.randint(0, 2, value.shape, generator=draws) - 1
            value.mul_(1 + _ROUNDING * signs)
    return moved(x).detach()


def require_steps_of_torch(module: nn.Module, path: Path, x: Tensor = X) -> None:
    """Require the loss that a module gives, and the gradients of a step."""
    module.train()
    found, loss = stepped(module, x.clone(), path)
    exact = exactly(module)
    expected = exact(exactly(x))
    expected.backward()
    assert_near(loss, expected.detach().numpy())
    gradients = {name: parameter.grad for name, parameter in exact.named_parameters()}
    # What cancels in one gradient is of the size of the others.
    largest = max(float(gradient.abs().max()) for gradient in gradients.values())
    for name, parameter in exact.named_parameters():
        size = max(float(parameter.detach().abs().max()), largest)
        assert_near(found[name], gradients[name].numpy(), 1e-4, size=0.1 * size, what=name)
