"""Attention, however a module writes it, is one operator that reads tokens as they lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pef
import sambac
import sambarun

HEADS, SIZE = 4, 6
WIDTH = HEADS * SIZE
CAUSAL = torch.triu(torch.full((5, 5), -torch.inf), 1)


class Joint(nn.Module):
    """Queries, keys and values of one projection, told apart by an axis of their own."""

    def __init__(self, *, picked: bool, spelled: bool) -> None:
        super().__init__()
        self.joint = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.picked, self.spelled = picked, spelled

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        parts = self.joint(x).reshape(batch, length, 3, HEADS, SIZE).permute(2, 0, 3, 1, 4)
        q, k, v = (parts[0], parts[1], parts[2]) if self.picked else parts.unbind(0)
        if self.spelled:
            y = ((q * SIZE**-0.5) @ k.transpose(-2, -1)).softmax(-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v)
        made: Tensor = self.out(y.transpose(1, 2).reshape(batch, length, WIDTH))
        return made


class Merged(nn.Module):
    """Products of matrices over heads and examples as one axis, with a mask of examples."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.mask = nn.Buffer(torch.randn(2, 1, 5, 5))

    def heads(self, x: Tensor) -> Tensor:
        return x.view(2, 5, HEADS, SIZE).transpose(1, 2).reshape(2 * HEADS, 5, SIZE)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(self.q(x) * SIZE**-0.5), self.heads(self.k(x)), self.heads(self.v(x))
        scores = torch.bmm(q, k.transpose(1, 2)).view(2, HEADS, 5, 5) + self.mask
        y = torch.bmm(scores.view(2 * HEADS, 5, 5).softmax(-1), v)
        return y.view(2, HEADS, 5, SIZE).transpose(1, 2).reshape(2, 5, WIDTH)


class Module(nn.Module):
    """The module of PyTorch."""

    def __init__(self, *, weights: bool, mask: Tensor | None = None, padded: bool = False) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.weights = weights
        self.register_buffer("mask", mask)
        hidden = torch.tensor([[False, False, False, True, True], [False] * 5])
        self.register_buffer("hidden", hidden if padded else None)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.attention(
            x, x, x, self.hidden, need_weights=self.weights, attn_mask=self.mask
        )[0]
        return made


def layer(activation: str = "relu", *, norm_first: bool = False) -> nn.Module:
    return nn.TransformerEncoderLayer(
        WIDTH, HEADS, 8, 0.0, activation, batch_first=True, norm_first=norm_first
    )


MODULES = {
    **{
        f"of one projection, {'picked' if picked else 'unbound'}, "
        f"{'spelled out' if spelled else 'one function'}": Joint(picked=picked, spelled=spelled)
        for picked in (False, True)
        for spelled in (False, True)
    },
    "of merged heads": Merged(),
    "of the module": Module(weights=False),
    "of the module, with weights": Module(weights=True),
    "of the module, causal": Module(weights=False, mask=CAUSAL),
    "of the module, masked by heads": Module(weights=True, mask=torch.randn(2 * HEADS, 5, 5)),
    "of the module, padded": Module(weights=False, padded=True),
    "of a layer": layer(),
    "of a layer that normalises first": layer("gelu", norm_first=True),
}


def operators(program: pef.Program) -> Iterator[str]:
    for section in program.sections:
        for group in section.groups:
            yield from (operator.op_type for operator in group.operators)


@pytest.mark.parametrize("name", MODULES)
def test_it_is_one_operator_and_nothing_is_moved(name: str, tmp_path: Path) -> None:
    module = MODULES[name].eval()
    x = torch.randn(2, 5, WIDTH)
    program = sambac.compile(module, inputs=(x,))
    kinds = Counter(operators(program))
    assert kinds["Attention"] == 1
    assert not kinds.keys() & {"Transpose", "Gather", "Slice", "Softmax", "Squeeze"}
    program.save(tmp_path / "model.pef")
    with sambarun.load(tmp_path / "model.pef") as executable:
        (found,) = executable.run({program.graphs[0].inputs[0].name: x.numpy()}).values()
    with torch.no_grad():
        np.testing.assert_allclose(found, module(x), rtol=2e-5, atol=2e-6)


class Loss(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.inner(x)
        return (made * torch.linspace(-1, 1, made.numel()).reshape(made.shape)).sum()


@pytest.mark.parametrize(
    "name", ["of one projection, picked, spelled out", "of merged heads", "of the module, padded"]
)
def test_it_trains_as_it_does_in_pytorch(name: str, tmp_path: Path) -> None:
    loss = Loss(MODULES[name]).train()
    x = torch.randn(2, 5, WIDTH)
    options = sambac.CompileOptions(train=True, optimizers=(sambac.SGD(lr=1.0),))
    program = sambac.compile(loss, options, inputs=(x,))
    assert "Gather" not in {*operators(program)}
    program.save(tmp_path / "model.pef")
    weights = dict(loss.named_parameters())
    gradients = torch.autograd.grad(loss(x), [*weights.values()])
    with sambarun.load(tmp_path / "model.pef") as executable:
        executable.step({program.graphs[0].inputs[0].name: x.numpy()})
        after = executable.state()
    for (weight, before), gradient in zip(weights.items(), gradients, strict=True):
        expected = (before - gradient).detach().numpy()
        np.testing.assert_allclose(after[weight], expected, rtol=2e-5, atol=2e-5)
