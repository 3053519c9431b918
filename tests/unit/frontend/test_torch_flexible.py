"""Flexible attention infers and trains as what it means; PyTorch trains it on GPUs alone."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from near import assert_near, exactly
from own_gradient_steps import stepped
from torch import Tensor, nn
from torch.nn.attention.flex_attention import (
    AuxRequest,
    BlockMask,
    create_block_mask,
    flex_attention,
)

import sambac
import sambarun

_X = torch.randn(2, 4, 5, 6, generator=torch.Generator().manual_seed(0))
_FAR = 3


def _is_kept(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Neighbours that come before; nothing for the last row of the first head."""
    return (i >= j) & (i - j < _FAR) & ~((h == 0) & (i == 4))


def _mask() -> BlockMask:
    return create_block_mask(_is_kept, None, 4, 5, 5, device="cpu")


class _Net(nn.Module):
    """Two heads of keys for four of queries, with a distance that is learned of vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = nn.Linear(6, 12)
        self.bias, self.spots = nn.Parameter(torch.randn(4, 9)), nn.Parameter(torch.randn(5, 2))
        self.mask = _mask()

    def _changed(self, score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        apart = (self.spots[i] - self.spots[j]).square().sum()
        return 4 * torch.tanh(score / 4) + self.bias[h, i - j + 4] - apart

    def attended(self, x: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = self.keys(x[:, :2]).chunk(2, -1)
        sums = AuxRequest(lse=True)
        settings = {"score_mod": self._changed, "block_mask": self.mask, "scale": 0.5}
        found, more = flex_attention(x, keys, values, enable_gqa=True, return_aux=sums, **settings)
        return found, more.lse

    def forward(self, x: Tensor) -> Tensor:
        found, sums = self.attended(x)
        return found.square().sum() + sums[:, 1:].square().sum()


class _Spelled(_Net):
    def attended(self, x: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = self.keys(x[:, :2]).repeat_interleave(2, 1).chunk(2, -1)
        h, i, j = torch.meshgrid(torch.arange(4), torch.arange(5), torch.arange(5), indexing="ij")
        apart = (self.spots[:, None] - self.spots).square().sum(-1)
        scores = 4 * torch.tanh(x @ keys.mT / 8) + self.bias[h, i - j + 4] - apart
        scores = scores.masked_fill(~_is_kept(h, h, i, j), -1e9)
        shares = scores.softmax(-1) * (scores.amax(-1, True) > -1e8)
        return shares @ values, scores.logsumexp(-1)


class _Documents(nn.Module):
    """Tokens that see those of their document, of which inputs are told."""

    def __init__(self, *, spelled: bool) -> None:
        super().__init__()
        self.layer, self.bias = nn.Linear(6, 6), nn.Parameter(torch.randn(4, 2))
        self.spelled = spelled

    def forward(self, x: Tensor, documents: Tensor) -> Tensor:
        q = self.layer(x)
        if self.spelled:
            same = documents[:, :, None] == documents[:, None]
            scores = q @ x.mT / math.sqrt(6) + self.bias[:, 1, None, None] * torch.arange(5)
            return (scores.masked_fill(~same[:, None], -torch.inf).softmax(-1) @ x).square().sum()

        def is_same(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return documents[b, i] == documents[b, j]

        def biased(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score + self.bias[h, 1] * j

        mask = create_block_mask(is_same, 2, None, 5, 5, device="cpu")
        return flex_attention(q, x, x, score_mod=biased, block_mask=mask).square().sum()


def test_masks_of_inputs() -> None:
    module, documents = _Documents(spelled=False), torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 2, 2]])
    options = sambac.CompileOptions(train=True, optimizers=(sambac.SGD(lr=1.0),))
    program = sambac.compile(module, options, inputs=(_X, torch.zeros_like(documents)))
    with sambarun.load(program) as executable:
        begin = executable.state()
        given = {"x": _X.numpy(), "documents": documents.numpy()}
        (loss,) = executable.step(given).values()
        found = {name: begin[name] - now for name, now in executable.state().items()}
    exact = _Documents(spelled=True).double()
    exact.load_state_dict(module.state_dict())
    expected = exact(exactly(_X), documents)
    expected.backward()
    assert_near(loss, expected.detach())
    for name, parameter in exact.named_parameters():
        assert_near(found[name], parameter.grad, 1e-4, what=name)


def _exact(module: nn.Module) -> nn.Module:
    spelled = _Spelled()
    spelled.load_state_dict(module.state_dict())
    return exactly(spelled)


def test_step(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = _Net()
    found, loss = stepped(module, _X, tmp_path / "step.pef")
    exact = _exact(module)
    expected = exact(exactly(_X))
    expected.backward()
    assert_near(loss, expected.detach())
    for name, parameter in exact.named_parameters():
        size = float(parameter.detach().abs().max())
        assert_near(found[name], parameter.grad, 1e-4, size=size, what=name)


@pytest.mark.parametrize("compiled", [False, True])
def test_results(compiled: bool) -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.mask = nn.Parameter(torch.tensor([2.0])), _mask()
            self.attention = (
                torch.compile(flex_attention, backend="eager") if compiled else flex_attention
            )

        def forward(self, x: Tensor) -> Tensor:
            return self.attention(self.scale * x, x, x, block_mask=self.mask)

    module = Plain()
    with sambarun.load(sambac.compile(module, inputs=(_X,))) as executable:
        (found,) = executable.run({"x": _X.numpy()}).values()
    x = exactly(_X)
    h, i, j = torch.meshgrid(torch.arange(4), torch.arange(5), torch.arange(5), indexing="ij")
    scores = (2 * x @ x.mT / math.sqrt(6)).masked_fill(~_is_kept(h, h, i, j), -torch.inf)
    assert_near(found, torch.nan_to_num(scores.softmax(-1)) @ x)


class _Listed(nn.Module):
    """Adds a number of which a list says the places: PyTorch takes each for an axis here."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(6.0).reshape(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        def added(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score + self.table[[1, 2]] * j

        return flex_attention(x, x, x, score_mod=added)


def test_lists_of_places_have_one_for_each_axis() -> None:
    with sambarun.load(sambac.compile(_Listed(), inputs=(_X,))) as executable:
        (found,) = executable.run({"x": _X.numpy()}).values()
    x = exactly(_X)
    scores = x @ x.mT / math.sqrt(6) + 5 * torch.arange(5)
    assert_near(found, scores.softmax(-1) @ x)
