"""Operators that give what they are given, or a copy of it, other than descriptions of them say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from two_steps import require_two_steps_of_torch

import sambac
import sambarun

_aten = torch.ops.aten
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


class _Writing(nn.Module):
    def __init__(self, function: Callable[[_Writing, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.w = nn.Parameter(torch.linspace(-1, 1, 4))
        self.register_buffer("kept", torch.arange(4.0) + 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x).square().mean()


def _lifted_buffer(module: _Writing, x: Tensor) -> Tensor:
    lifted = _aten.lift(module.kept)
    lifted.add_(1)
    return x * module.w * module.kept


def _buffer_that_was_lifted(module: _Writing, x: Tensor) -> Tensor:
    lifted = _aten.lift.default(self=module.kept)
    module.kept.add_(1)
    return x * module.w * lifted


def _lifted_fresh(module: _Writing, x: Tensor) -> Tensor:
    lifted = _aten.lift_fresh(module.kept)
    lifted.add_(1)
    return x * module.w * module.kept


def _lifted(module: _Writing, x: Tensor) -> Tensor:
    y = x * module.w
    _aten.lift(y).mul_(2)
    return y


def _was_lifted(module: _Writing, x: Tensor) -> Tensor:
    y = x * module.w
    lifted = _aten.lift(y)
    y.mul_(2)
    return lifted


def _undropped(module: _Writing, x: Tensor) -> Tensor:
    y = x * module.w
    given, _ = torch.native_dropout(y, 0.5, False)
    given.mul_(2)
    return y


def _dropped_at_no_rate(module: _Writing, x: Tensor) -> Tensor:
    y = x * module.w
    given, mask = _aten.native_dropout(input=y, p=0.0, train=True)
    y.mul_(2)
    return given * mask


def _undropped_buffer(module: _Writing, x: Tensor) -> Tensor:
    given, _ = torch.native_dropout(module.kept, 0.5, False)
    given.add_(1)
    return x * module.w * module.kept


def _undropped_elsewhere(module: _Writing, x: Tensor) -> Tensor:
    y = x * module.w.detach()
    outs = torch.empty_like(y), torch.empty_like(y, dtype=torch.bool)
    given, _ = _aten.native_dropout(y, 0.5, False, out0=outs[0], out1=outs[1])
    return given + y


_FUNCTIONS = (
    *(_lifted_buffer, _buffer_that_was_lifted, _lifted_fresh, _lifted, _was_lifted),
    *(_undropped, _dropped_at_no_rate, _undropped_buffer),
)


@pytest.mark.parametrize("function", _FUNCTIONS)
def test_training(function: Callable[[_Writing, Tensor], Tensor]) -> None:
    require_two_steps_of_torch(_Writing(function), X)


@pytest.mark.parametrize("function", [_lifted, _was_lifted, _undropped, _undropped_elsewhere])
@pytest.mark.parametrize("recorded", [False, True])
def test_values(function: Callable[[_Writing, Tensor], Tensor], recorded: bool) -> None:
    module = _Writing(function).eval()
    model = torch.export.export(module, (X,), strict=False) if recorded else module
    wanted = (model.module() if recorded else module)(X)
    program = sambac.compile(model, inputs=None if recorded else (X,))
    with sambarun.load(program) as executable:
        (found,) = executable.run({"x": X.numpy()}).values()
    np.testing.assert_allclose(found, wanted.detach().numpy(), rtol=1e-5)
