"""Small models that the tests of sessions compile, and a session for each test."""

from __future__ import annotations

import torch
from torch import nn

import sambaflow.samba as samba

BATCH, FEATURES, CLASSES = 5, 4, 3


class Classifier(nn.Module):
    """Dropout, batch statistics, two outputs: a loss and what it is of."""

    def __init__(self, rate: float = 0.5) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)
        self.norm = nn.BatchNorm1d(CLASSES)
        self.dropout = nn.Dropout(rate)
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, image: torch.Tensor, label: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = self.dropout(self.norm(self.layer(image)))
        return self.criterion(out, label), out


def batch(seed: int = 0) -> tuple[samba.SambaTensor, samba.SambaTensor]:
    generator = torch.Generator().manual_seed(seed)
    image = torch.randn(BATCH, FEATURES, generator=generator)
    label = torch.randint(CLASSES, (BATCH,), generator=generator)
    return (
        samba.from_torch_tensor(image, name="image"),
        samba.from_torch_tensor(label, name="label"),
    )


def classifier(rate: float = 0.5) -> Classifier:
    torch.manual_seed(0)
    return samba.from_torch_model(Classifier(rate))


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return samba.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
