"""A training loop on the host, to compare the device's with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import nn

from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.arguments.kinds import instance

__all__ = ["train"]


@checked(
    loader=instance(Iterable, "a loader of batches"),
    optimizer=instance(torch.optim.Optimizer, "an optimizer"),
)
def train(
    model: nn.Module,
    loader: Iterable[Sequence[torch.Tensor]],
    optimizer: torch.optim.Optimizer,
    num_epochs: int = 1,
) -> list[float]:
    """Train `model` on the host and return each epoch's mean loss.

    A batch is the arguments of `forward`. The loss is the mean of the first output; its elements
    get ones as gradients, as on the device. Raises ValueError for an epoch without batches.
    """
    means = []
    for _ in range(num_epochs):
        losses = []
        for batch in loader:
            optimizer.zero_grad()
            found = model(*batch)
            loss = found if isinstance(found, torch.Tensor) else found[0]
            loss.sum().backward()
            optimizer.step()
            losses.append(float(loss.detach().float().mean()))
        if not losses:
            raise ValueError("the loader gave no batch; an epoch needs one at least")
        means.append(sum(losses) / len(losses))
    return means
