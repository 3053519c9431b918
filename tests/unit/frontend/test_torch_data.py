"""What `.data` of a tensor gives while a module is recorded: another name, without gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from near import assert_near, exactly
from torch import nn
from two_steps import require_two_steps_of_torch

import sambac
import sambarun
from sambac import SGD, CompileOptions
from sambac.errors import CompileError

Function = Callable[["_Model", torch.Tensor], torch.Tensor]

X = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
TRAIN = CompileOptions(train=True, optimizers=(SGD(lr=0.5),))


class _Model(nn.Module):
    """A layer, a scale and a buffer, of which `function` computes something."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.scale = nn.Linear(3, 3), nn.Parameter(torch.rand(3) + 0.5)
        self.register_buffer("mean", torch.zeros(3))
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x).square().mean()


def _averaged(model: _Model, x: torch.Tensor) -> torch.Tensor:
    model.mean.data.mul_(0.9).add_(x.mean(0), alpha=0.1)
    return model.layer(x) * model.scale + model.mean


def _copied(model: _Model, x: torch.Tensor) -> torch.Tensor:
    hidden = model.layer(x)
    model.mean.data.copy_(hidden.data.mean(0))
    return hidden * model.scale


def _filled(model: _Model, x: torch.Tensor) -> torch.Tensor:
    room = torch.zeros(2, 3)
    room.data[:, 0] = 1
    return model.layer(x) * model.scale + room


def _clamped(model: _Model, x: torch.Tensor) -> torch.Tensor:
    hidden = model.layer(x)
    hidden.data.clamp_(-0.5, 0.5)
    return hidden * model.scale


READ: dict[str, Function] = {
    "parameter": lambda m, x: (x @ m.layer.weight.data) * m.scale,
    "parameter beside itself": lambda m, x: (x @ m.layer.weight.data) * m.layer(x),
    "result": lambda m, x: m.layer(x).data * m.scale + m.layer(x),
    "straight through": lambda m, x: m.layer(x) + (m.layer(x).round() - m.layer(x)).data * m.scale,
    "input": lambda m, x: m.layer(x.data) * m.scale,
    "type alone": lambda m, x: m.layer(x.to(m.scale.data.dtype)) * m.scale,
    "buffer that is written": _averaged,
    "buffer that is copied to": _copied,
    "room that is filled": _filled,
}


@pytest.mark.parametrize("name", READ)
def test_data_of_tensors_trains_as_in_pytorch(name: str) -> None:
    require_two_steps_of_torch(_Model(READ[name]), X, lr=0.5)


def test_data_that_is_written_is_written_at_inference() -> None:
    model = _Model(_clamped)
    with sambarun.load(sambac.compile(model, inputs=(X,))) as executable:
        assert_near(executable.run({"x": X.numpy()})["output"], exactly(model)(exactly(X)))


def test_data_that_is_written_where_gradients_flow_is_refused() -> None:
    with pytest.raises(CompileError, match=r"changes a tensor in place .* gradients flow through"):
        sambac.compile(_Model(_clamped), TRAIN, inputs=(X,))


def test_data_of_a_parameter_may_not_be_written() -> None:
    model = _Model(lambda m, x: m.layer(x) * m.scale.data.clamp_(0, 1))
    with pytest.raises(CompileError, match="writes its parameters scale"):
        sambac.compile(model, TRAIN, inputs=(X,))
