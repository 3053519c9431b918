"""A model in bfloat16 trains on the device as in PyTorch, and its weights come back."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from torch import Tensor, nn

import sambaflow.samba as samba
import sambaflow.samba.utils as utils


class _Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 4)
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, image: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss and the logits; image (batch, 8), label (batch,)."""
        logits = self.second(torch.relu(self.first(image)))
        return self.criterion(logits, label), logits


def test_a_model_in_bfloat16_trains(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = _Classifier().bfloat16()
    expected = copy.deepcopy(model)
    samba.session.reset()
    samba.from_torch_model_(model)
    inputs = (
        samba.randn(3, 8, name="image", batch_dim=0).bfloat16(),
        samba.from_torch_tensor(torch.tensor([0, 2, 3]), name="label", batch_dim=0),
    )
    optimizer = samba.optim.SGD(model.parameters(), lr=0.5)
    config = {"output_folder": str(tmp_path)}
    pef = samba.session.compile(model, inputs, optimizer, name="narrow", config_dict=config)
    traced = utils.trace_graph(model, inputs, optimizer, pef=pef)
    found = [samba.to_torch(item) for item in samba.session.run(inputs, traced)]
    samba.session.to_cpu(model)

    wanted = expected(*(samba.to_torch(item) for item in inputs))
    wanted[0].backward()
    torch.optim.SGD(expected.parameters(), lr=0.5).step()
    found += [samba.to_torch(item).detach() for item in model.parameters()]
    for got, want in zip(found, [*wanted, *expected.parameters()], strict=True):
        assert got.dtype == torch.bfloat16
        torch.testing.assert_close(got.reshape(want.shape), want.detach(), rtol=0.02, atol=0.02)
