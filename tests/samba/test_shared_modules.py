"""Modules that are in a model twice, and parameters of two modules: none is left a stand-in."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import sambaflow.samba as samba
from sambaflow.samba import utils


class Encoder(nn.Module):
    """Embeds with a module that its model has as well."""

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self.embedding = embedding
        self.mix = nn.Linear(6, 6)

    def forward(self, ids: Tensor) -> Tensor:
        return self.mix(self.embedding(ids)).tanh()


class Shared(nn.Module):
    """One embedding at three paths, tied to the head; one normalization at two."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.encoder, self.decoder = Encoder(self.embedding), Encoder(self.embedding)
        self.norm = self.again = norm
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embedding.weight
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        mixed = self.norm(self.encoder(ids)) + self.again(self.decoder(labels))
        scores = self.head(mixed)
        return self.criterion(scores, labels), scores


def _inputs(labels: int = 5) -> tuple[Tensor, Tensor]:
    return (
        samba.from_torch_tensor(torch.randint(0, 11, (5,)), name="ids"),
        samba.from_torch_tensor(torch.randint(0, 11, (labels,)), name="labels"),
    )


def test_a_model_that_shares_modules_trains_like_torch(tmp_path: Path) -> None:
    utils.set_seed(5)
    model, inputs = Shared(nn.LayerNorm(6)), _inputs()
    gold = copy.deepcopy(model)
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    pef = samba.session.compile(
        model, inputs, optimizer, name="shared", config_dict={"output_folder": str(tmp_path)}
    )
    outputs = utils.trace_graph(model, inputs, optimizer, pef=pef)
    plain = torch.optim.SGD(gold.parameters(), lr=0.1)
    for _ in range(4):
        found, _ = samba.session.run(inputs, outputs)
        expected, _ = gold(*map(samba.to_torch, inputs))
        plain.zero_grad()
        expected.backward()
        plain.step()
        torch.testing.assert_close(samba.to_torch(found), expected.detach(), rtol=1e-5, atol=1e-6)
    samba.session.to_cpu(model)
    torch.testing.assert_close(model.head.weight.data, gold.head.weight.data, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("labels", [5, 4], ids=["traced", "refused"])
def test_tracing_leaves_shared_modules_as_they_are(labels: int) -> None:
    model = Shared(nn.BatchNorm1d(6))
    samba.from_torch_model_(model)
    before = {name: (id(t), t.data.clone()) for name, t in model.state_dict(keep_vars=True).items()}
    try:
        utils.trace_graph(model, _inputs(labels))
    except RuntimeError:
        assert labels == 4
    after = model.state_dict(keep_vars=True)
    assert {name: id(tensor) for name, tensor in after.items()} == {
        name: number for name, (number, _) in before.items()
    }
    for name, (_, values) in before.items():
        assert torch.equal(after[name].data, values)
