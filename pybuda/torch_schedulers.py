"""Schedulers of learning rates, for torch's optimizers on a `CPUDevice`."""

from __future__ import annotations

from abc import abstractmethod

import torch

from pef.warned import warn


class TorchLearningRateScheduler(torch.optim.lr_scheduler.LRScheduler):
    """The base of schedulers: a subclass says by `get_lr` what the next learning rates are.

    Unlike torch's own, it changes none before the first step.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.base_lrs = [group["lr"] for group in optimizer.param_groups]
        self._last_lr = [*self.base_lrs]
        self.last_epoch = 0

    @abstractmethod
    def get_lr(self) -> list[float | torch.Tensor]:
        """Return a learning rate for each group of parameters."""

    def step(self, epoch: int | None = None) -> None:
        """Give the optimizer its next learning rates. `epoch` changes nothing but warns."""
        if epoch is not None:
            warn(f"epoch={epoch!r}: schedulers count their steps themselves; it has no effect here")
        self.last_epoch += 1
        self._last_lr = [*self.get_lr()]
        for group, rate in zip(self.optimizer.param_groups, self._last_lr, strict=True):
            group["lr"] = rate
