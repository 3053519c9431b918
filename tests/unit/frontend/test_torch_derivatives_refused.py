"""Derivatives that no recording has are refused in a sentence, in both modes."""

from __future__ import annotations

import pytest
import torch
from derivative_steps import Function, Taking, X, slope
from torch import Tensor, func, nn
from torch.autograd import forward_ad
from torch.nn import functional

import sambac
from sambac.errors import CompileError

grad = torch.autograd.grad


def _hooked(w: Tensor, x: Tensor) -> Tensor:
    x = x.requires_grad_()
    h = x @ w
    h.register_hook(lambda gradient: 2 * gradient)
    return slope(h.sin(), x).sum()


def _dropping_attention(w: Tensor, x: Tensor) -> Tensor:
    x = x.requires_grad_()
    return slope(functional.scaled_dot_product_attention(x, x @ w, x, dropout_p=0.5), x).sum()


def _of_a_choice(w: Tensor, x: Tensor) -> Tensor:
    x = x.requires_grad_()
    y = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x @ w,))
    return slope(y, x).sum()


def _of_a_constant(w: Tensor, x: Tensor) -> Tensor:
    return slope((x.detach() @ w).sum(), x)


def _of_several(w: Tensor, x: Tensor) -> Tensor:
    x = x.requires_grad_()
    return grad(x @ w, x, create_graph=True)[0].sum()


def _not_used(w: Tensor, x: Tensor) -> Tensor:
    x = x.requires_grad_()
    return slope(w.sin(), x).sum()


def _dual(w: Tensor, x: Tensor) -> Tensor:
    with forward_ad.dual_level():
        y = forward_ad.make_dual(x, x.sin()) @ w
        return forward_ad.unpack_dual(y).tangent.sum()


def _pulled_outside(w: Tensor, x: Tensor) -> Tensor:
    """What has been computed is a constant, but for `w`."""
    with torch.no_grad():
        value, pull = func.vjp(lambda v: (v @ w).tanh(), x)
    return pull(value)[0].square().sum()


def _asked_for_gradients(w: Tensor, x: Tensor) -> Tensor:
    with torch.no_grad():
        value, pull = func.vjp(lambda v: (v @ w).tanh(), x)
        return pull(value, create_graph=True)[0].square().sum() * w.sum()


def _of_what_is_pulled_outside(w: Tensor, x: Tensor) -> Tensor:
    return func.grad(lambda v: _pulled_outside(w, v))(x).sum()


_VJP = r"torch\.func\.vjp inside torch\.no_grad\(\), .* call both inside"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (_dual, r"forward_ad .* take them with torch\.func\.jvp"),
        (_hooked, "changes gradients with a hook on a tensor"),
        (_dropping_attention, "derivative of attention with dropout, .* let it have none"),
        (_of_a_choice, r"derivative of cond, .* torch\.where"),
        (_of_a_constant, r"does not require grad .* call requires_grad_\(\)"),
        (_of_several, "only for scalar outputs"),
        (_not_used, "appears to not have been used"),
        (_pulled_outside, _VJP),
        (_asked_for_gradients, _VJP),
        (_of_what_is_pulled_outside, _VJP),
    ],
)
@pytest.mark.parametrize("train", [False, True])
def test_what_is_not_recorded_is_refused(function: Function, said: str, train: bool) -> None:
    options = sambac.CompileOptions(train=train)
    with pytest.raises(CompileError, match=said):
        sambac.compile(Taking(function), options, inputs=(X.clone(),))


def test_a_recurrent_layer_that_drops_is_refused() -> None:
    """PyTorch's own formula of one forgets to drop."""

    class _Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LSTM(4, 3, 2, dropout=0.5)

        def forward(self, x: Tensor) -> Tensor:
            x = x.requires_grad_()
            return slope(self.layer(x)[0], x).sum()

    said = "recurrent layer with dropout"
    with pytest.raises(CompileError, match=said):
        sambac.compile(
            _Recurrent(), sambac.CompileOptions(train=True), inputs=(torch.randn(2, 3, 4),)
        )
