"""A small convolutional network with batch normalisation and dropout, and its loss.

`sambac compile examples/digits/model.py:digits` calls `digits`. PyTorch is needed for that alone:
neither training nor running what was compiled loads it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

BATCH = 32
_SEED = 0


class Digits(nn.Module):
    """Pictures x, float32 [N, 1, 8, 8], and digits y, int64 [N]: the loss, logits [N, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classify = nn.Sequential(nn.Flatten(), nn.Dropout(0.25), nn.Linear(32 * 4 * 4, 10))

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """Return the mean cross entropy and what it is computed from."""
        logits = self.classify(self.features(x))
        return {"loss": nn.functional.cross_entropy(logits, y), "logits": logits}


def digits() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """Return the network with its first weights, and example inputs: they set the batch size."""
    torch.manual_seed(_SEED)
    return Digits(), (torch.zeros(BATCH, 1, 8, 8), torch.zeros(BATCH, dtype=torch.int64))
