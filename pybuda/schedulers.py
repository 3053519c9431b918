"""Schedulers of learning rates, for optimizers of a `TTDevice`."""

from __future__ import annotations

from .errors import PyBudaError
from .optimizers import Optimizer


class LearningRateScheduler:
    """The base of schedulers: a subclass says by `get_lr` what the next learning rate is."""

    torch_scheduler: object = None  # where programs keep one of torch's, for a CPUDevice

    def __init__(self, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, Optimizer):
            raise PyBudaError(f"a scheduler got a {type(optimizer).__name__}, not an Optimizer")
        self.optimizer = optimizer

    def get_lr(self) -> float:
        """Return the learning rate of the steps that follow; for subclasses to say."""
        raise PyBudaError(f"{type(self).__name__} has no get_lr, which says the learning rate")

    def step(self) -> None:
        """Give the optimizer its next learning rate."""
        self.optimizer.learning_rate = self.get_lr()  # runs refuse what is no number
