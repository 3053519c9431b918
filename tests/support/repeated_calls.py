"""Training of modules whose calls are looked at, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from near import assert_near, exactly
from torch import nn

import sambac
import sambarun

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
TRAIN = sambac.CompileOptions(train=True, optimizers=(sambac.SGD(lr=0.1),))


class Keeping(nn.Module):
    """A layer, and a state that a function changes in each call."""

    def __init__(self, state: object, step: Callable[[Keeping, torch.Tensor], object]) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer = nn.Linear(4, 4)
        self.state: Any = state
        self.step = step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        self.step(self, y)
        return y.square().mean()


def trains_as_in_torch(model: nn.Module) -> None:
    """Require the losses of three steps on `X`, and the parameters after them."""
    exact = exactly(model)
    with sambarun.load(sambac.compile(model, TRAIN, inputs=(X,))) as executable:
        found = [executable.step({"x": X.numpy()})["output"] for _ in range(3)]
        state = executable.state()
    optimizer = torch.optim.SGD(exact.parameters(), lr=0.1)
    for loss in found:
        optimizer.zero_grad()
        wanted = exact(exactly(X))
        wanted.backward()
        optimizer.step()
        assert_near(loss, wanted.detach().numpy())
    for name, parameter in exact.named_parameters():
        assert_near(state[name], parameter.detach().numpy())
