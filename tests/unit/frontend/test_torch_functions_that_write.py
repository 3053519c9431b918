"""Functions with a backward method of their own that write what they are given, differentiated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from derivative_steps import Taking, require_steps_of_torch
from torch import Tensor
from torch.autograd import Function

grad = torch.autograd.grad


def _function(forward: Callable[..., Any], backward: Callable[..., Any]) -> type[Function]:
    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("Made", (Function,), methods)


def _dirty(ctx: Any, h: Tensor, k: Tensor) -> Tensor:
    ctx.mark_dirty(h)
    return h.mul_(k)


def _two_dirty(ctx: Any, h: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    ctx.mark_dirty(h, k)
    h.mul_(2)
    k.add_(h)
    return h, k


def _said_to_be_dirty(ctx: Any, h: Tensor, k: Tensor) -> Tensor:
    ctx.mark_dirty(h)
    return h


def _dirty_constant(ctx: Any, h: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    ctx.mark_dirty(h)
    ctx.mark_non_differentiable(h)
    h.mul_(2)
    return h, h * k


def _unmarked(ctx: Any, h: Tensor, k: Tensor) -> Tensor:
    return h.mul_(k) * k


def _odd(ctx: Any, came: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients that no formula of `forward` has."""
    return 3 * came, came.sin()


class _WithSetup(Function):
    @staticmethod
    def forward(h: Tensor, k: Tensor) -> Tensor:
        return h.mul_(k)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.mark_dirty(inputs[0])

    @staticmethod
    def backward(ctx: Any, came: Tensor) -> tuple[Tensor, Tensor]:
        return 3 * came, came.sin()


_DIRTY, _UNMARKED = _function(_dirty, _odd), _function(_unmarked, _odd)
_CONSTANT = _function(_dirty_constant, lambda ctx, g, d: (3 * d, d.sin()))


def _by_the_argument(kind: type[Function]) -> Callable[[Tensor, Tensor], Tensor]:
    def taken(w: Tensor, x: Tensor) -> Tensor:
        h, k = (x := x.requires_grad_()) @ w, x.sin()
        y = kind.apply(h, k)
        y = y[0] * y[1] if isinstance(y, tuple) else y
        of_h, of_x = grad((y.sin() * h).sum(), [h, x], create_graph=True)
        return (of_h * of_x).sum()

    return taken


def _twice(w: Tensor, x: Tensor) -> Tensor:
    h = x.requires_grad_() @ w
    y = _DIRTY.apply(_DIRTY.apply(h, w[0]), w[1])
    return grad((y.sin() * h).sum(), h, create_graph=True)[0].square().sum()


def _of_a_part(w: Tensor, x: Tensor) -> Tensor:
    h = x.requires_grad_() @ w
    y = _DIRTY.apply(h[:, :2], x[:, :2])
    return grad((y * h.sum()).sum(), h, create_graph=True)[0].square().sum()


def _without_gradients(kind: type[Function]) -> Callable[[Tensor, Tensor], Tensor]:
    """What is written has no gradients before the call, and what is written into it has some."""

    def taken(w: Tensor, x: Tensor) -> Tensor:
        h = x * 2
        y = kind.apply(h, w[0])
        return (y.sin() * h * w[1]).sum()

    return taken


def _constant(w: Tensor, x: Tensor) -> Tensor:
    h = x @ w
    y, z = _CONSTANT.apply(h, w[:3])
    return (y * h * z * w[1]).sum()


FORMS = {
    "marked": _by_the_argument(_DIRTY),
    "two marked": _by_the_argument(_function(_two_dirty, lambda ctx, g, d: (3 * g + d, d.sin()))),
    "marked, and as it was": _by_the_argument(_function(_said_to_be_dirty, _odd)),
    "with setup": _by_the_argument(_WithSetup),
    "not marked": _by_the_argument(_UNMARKED),
    "twice": _twice,
    "of a part": _of_a_part,
    "marked, without gradients": _without_gradients(_DIRTY),
    "not marked, without gradients": _without_gradients(_UNMARKED),
    "marked as constant, too": _constant,
}


@pytest.mark.parametrize("form", FORMS)
def test_what_is_written_has_the_gradients_of_pytorch(form: str, tmp_path: Path) -> None:
    require_steps_of_torch(Taking(FORMS[form]), tmp_path / "m.pef")
