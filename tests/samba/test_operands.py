"""Operands that torch does not take: of two types in a product, and SambaTensors as constants."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import sambaflow.samba as samba
from sambaflow.samba import utils
from sambaflow.samba.tensors import operands
from sambaflow.samba.tensors.operands import PlainOperands

_SQUARE = torch.arange(9.0).reshape(3, 3) / 8
"""Values that bfloat16 holds exactly."""
_PRODUCTS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    torch.matmul,
    torch.mm,
    functional.linear,
    Tensor.matmul,
    lambda a, b: a @ b,
    lambda a, b: torch.bmm(a[None], b[None]),
    lambda a, b: torch.addmm(b[0], a, b),
    lambda a, b: torch.einsum("ij,jk->ik", a, b),
    lambda a, b: functional.conv2d(a[None, None], b[None, None], b[0, :1]),
    lambda a, b: functional.conv_transpose1d(a[None], b[:, None]),
    lambda a, b: functional.scaled_dot_product_attention(a[None], b[None], b[None]),
)


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("multiply", _PRODUCTS)
def test_products_take_the_wider_type(
    multiply: Callable[[Tensor, Tensor], Tensor], narrow: torch.dtype
) -> None:
    tensor = samba.SambaTensor(_SQUARE.to(narrow))
    for found in (multiply(tensor, _SQUARE), multiply(samba.SambaTensor(_SQUARE), tensor.data)):
        assert found.dtype is torch.float32
        assert torch.equal(samba.to_torch(found), multiply(_SQUARE, _SQUARE))


def test_products_of_one_narrow_type_stay_narrow() -> None:
    narrow = samba.SambaTensor(_SQUARE.bfloat16())
    assert (narrow @ narrow).dtype is torch.bfloat16


def test_products_of_other_types_are_refused_in_torchs_words() -> None:
    with pytest.raises(RuntimeError, match="dtype"):
        samba.ones(2, 2) @ samba.ones(2, 2, dtype=torch.int64)
    with pytest.raises(RuntimeError, match="dtype"):
        samba.ones(2, 2) @ samba.ones(2, 2, dtype=torch.float64)


_HALF = _SQUARE.bfloat16()
# Calls of plain operands, a look at which is enough, and of others.
_WRONG: tuple[tuple[Callable[..., object], tuple[object, ...]], ...] = (
    (torch.add, (_SQUARE, "text")),
    (torch.add, (_SQUARE, None)),
    (torch.add, (_SQUARE, torch.zeros(4))),
    (torch.add, ()),
    (torch.sum, (_SQUARE, 7)),
    (torch.sum, (_SQUARE, 0, "no", 1)),
    (torch.reshape, (_SQUARE, None)),
    (torch.reshape, (_SQUARE, (2, 2))),
    (torch.cat, (_SQUARE,)),
    (torch.cat, ([_SQUARE, 1.0],)),
    (torch.where, (_SQUARE, 1.0, 2.0)),
    (torch.bitwise_not, (_SQUARE,)),
    (torch.index_select, (_SQUARE, 0, torch.zeros(1))),
    (torch.gather, (_SQUARE, 0, samba.SambaTensor(torch.full((3, 3), 0.5)))),
    (torch.matmul, (_SQUARE, _SQUARE.long())),
    (torch.matmul, (_HALF, samba.SambaTensor(torch.zeros(4, 4)))),
    (torch.einsum, ("ij,jk", _HALF)),
    (functional.linear, (_SQUARE, None)),
    (Tensor.to, (_SQUARE, "nowhere")),
    (Tensor.view, (_SQUARE, torch.strided)),
    (Tensor.__getitem__, (_SQUARE, 9)),
    (Tensor.__getitem__, (_SQUARE, "text")),
    (Tensor.__getitem__, (_SQUARE, torch.zeros(2))),
    (Tensor.__getitem__, (_SQUARE, samba.SambaTensor(torch.tensor([0.5])))),
    (Tensor.__setitem__, (_SQUARE.clone(), 0, torch.zeros(4))),
    (Tensor.__setitem__, (_SQUARE.clone(), 0, samba.SambaTensor(torch.zeros(4)))),
)


def _said(func: Callable[..., object], args: tuple[object, ...]) -> tuple[type[Exception], str]:
    with PlainOperands(), pytest.raises((IndexError, RuntimeError, TypeError)) as refused:
        func(*args)
    return refused.type, str(refused.value)


@pytest.mark.parametrize(("func", "args"), _WRONG)
def test_wrong_operands_are_refused_at_a_look_as_after_a_walk(
    func: Callable[..., object], args: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = _said(func, args)
    monkeypatch.setattr(operands, "_is_plain", lambda _: False)
    assert _said(func, args) == looked


def test_a_look_is_enough_for_plain_operands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[Callable[..., object]] = []
    monkeypatch.setattr(operands, "in_one_type", lambda f, given: walked.append(f) or given)
    constant, index = samba.SambaTensor(_SQUARE), samba.SambaTensor(torch.zeros(1))
    with PlainOperands():
        plain = torch.add(_SQUARE, 2.0)
        assert walked == []
        mixed = torch.add(_SQUARE, constant)
        torch.cat([_SQUARE, constant])
        torch.add(_SQUARE, 1, alpha=2)
        torch.matmul(_SQUARE, _SQUARE)
        _ = _SQUARE[index]
    assert walked == [torch.add, torch.cat, torch.add, torch.matmul, Tensor.__getitem__]
    assert type(plain) is type(mixed) is Tensor
    assert torch.equal(mixed, 2 * _SQUARE)


class Decoder(nn.Module):
    """Decodes bfloat16 data with a constant and trains float32 weights on the result."""

    def __init__(self, constant: Tensor) -> None:
        super().__init__()
        self.constant = constant
        self.conv = nn.Conv2d(1, 2, 3)
        self.head = nn.Linear(2, 1)
        self.criterion = nn.MSELoss()

    def forward(self, image: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        decoded = torch.matmul(self.constant, torch.matmul(image, self.constant))
        out = self.head(self.conv(decoded).flatten(2).mean(-1))
        return self.criterion(out, target), out


@pytest.mark.parametrize("kept", [samba.from_torch_tensor, lambda constant: constant])
@pytest.mark.parametrize("narrow", [torch.float32, torch.bfloat16])
def test_models_with_constants_and_two_types_train(
    kept: Callable[[Tensor], Tensor], narrow: torch.dtype, tmp_path: Path
) -> None:
    utils.set_seed(7)
    constant = torch.randn(6, 6).bfloat16()
    model, gold = Decoder(kept(constant.to(narrow))), Decoder(constant.float())
    gold.load_state_dict(model.state_dict())
    samba.from_torch_model_(model)
    image, target = torch.randn(4, 1, 6, 6).bfloat16().float(), torch.randn(4, 1)
    sent = image.to(torch.bfloat16) if narrow is torch.float32 else image
    inputs = (
        samba.from_torch_tensor(sent, name="image"),
        samba.from_torch_tensor(target, name="y"),
    )
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    folder = {"output_folder": str(tmp_path)}
    pef = samba.session.compile(model, inputs, optimizer, name="decoder", config_dict=folder)
    loss, out = utils.trace_graph(model, inputs, optimizer, pef=pef)
    assert out.dtype is torch.float32
    plain = torch.optim.SGD(gold.parameters(), lr=0.1)
    for _ in range(3):
        found, _ = samba.session.run(inputs, (loss, out))
        expected, _ = gold(image, target)
        plain.zero_grad()
        expected.backward()
        plain.step()
        torch.testing.assert_close(samba.to_torch(found), expected.detach(), rtol=1e-2, atol=1e-3)


def test_a_kept_constant_is_stored_once(tmp_path: Path) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = samba.randn(64, 64)

        def forward(self, x: Tensor) -> Tensor:
            return (x @ self.table).relu() @ self.table

    model, x = Twice(), samba.randn(2, 64, name="x")
    folder = {"output_folder": str(tmp_path)}
    pef = samba.session.compile(model, x, inference=True, name="twice", config_dict=folder)
    assert Path(pef).stat().st_size < 2 * 64 * 64 * 4 + 8192
    utils.trace_graph(model, x, pef=pef)
    (found,) = samba.session.run(x, model.output_tensors)
    torch.testing.assert_close(samba.to_torch(found), model(x).data, rtol=1e-4, atol=1e-3)
