"""Modules that train for two steps as in PyTorch."""

from __future__ import annotations

import torch
from near import assert_near, exactly
from torch import nn

import sambac
import sambarun


def require_two_steps_of_torch(module: nn.Module, x: torch.Tensor, lr: float = 0.1) -> None:
    """Require losses, and what checkpoints hold afterwards, to be those of PyTorch in float64."""
    exact = exactly(module).train()
    optimizer = torch.optim.SGD(exact.parameters(), lr=lr)
    options = sambac.CompileOptions(train=True, optimizers=(sambac.SGD(lr=lr),))
    with sambarun.load(sambac.compile(module, options, inputs=(x,))) as executable:
        for _ in range(2):
            optimizer.zero_grad()
            loss = exact(exactly(x))
            loss.backward()
            optimizer.step()
            assert_near(executable.step({"x": x.numpy()})["output"], loss)
        state = executable.state()
    kept = exact.state_dict()
    for name, tensor in (*exact.named_parameters(), *exact.named_buffers()):
        if name in kept:
            assert_near(state[name], tensor, what=name)
