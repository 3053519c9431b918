"""What calls keep and no result shows, choices inside of choices, and buffers that calls make."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from near import assert_near, exactly
from repeated_calls import TRAIN, Keeping, X, trains_as_in_torch
from torch import nn
from torch._higher_order_ops.while_loop import while_loop
from torch._subclasses.fake_tensor import FakeTensor

import sambac
import sambarun


def summed(m: Keeping, y: torch.Tensor) -> None:
    m.state = m.state + y.mean()


def summed_and_divided(m: Keeping, y: torch.Tensor) -> None:
    m.state = m.state + y.detach().mean()
    m.average = m.state / 3


def summed_as_a_number(m: Keeping, y: torch.Tensor) -> None:
    m.state = m.state + y.mean().item()


@pytest.mark.parametrize("step", [summed, summed_and_divided, summed_as_a_number])
def test_meters_that_nothing_reads_are_told(step: Any) -> None:
    with pytest.warns(UserWarning, match=r"Keeping\.state"):
        trains_as_in_torch(Keeping(0.0, step))


def test_meters_that_are_read_are_refused() -> None:
    class Reading(Keeping):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * self.state

    with pytest.raises(sambac.CompileError, match=r"keeps Reading\.state"):
        sambac.compile(Reading(0.0, summed), TRAIN, inputs=(X,))


def nested(y: torch.Tensor) -> torch.Tensor:
    return torch.cond(
        y.mean() > 0.1,
        lambda one: torch.cond(one.sum() > 9, lambda z: z * 3, lambda z: z - 1, (one,)),
        lambda one: one + 1,
        (y,),
    )


def in_a_loop(y: torch.Tensor) -> torch.Tensor:
    def turn(number: torch.Tensor, one: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        halved = torch.cond(one.mean() > 1, lambda z: z * 0.5, lambda z: z * 1.5, (one,))
        return number + 1, halved

    result: torch.Tensor = while_loop(lambda n, _: n < 3, turn, (torch.tensor(0), y))[1]
    return result


class Choosing(nn.Module):
    """A layer, and control flow inside of other control flow."""

    def __init__(self, choice: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.layer, self.choice = nn.Linear(4, 4), choice

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.choice(self.layer(x).detach())


@pytest.mark.parametrize("choice", [nested, in_a_loop])
def test_choices_inside_of_control_flow(choice: Callable[[torch.Tensor], torch.Tensor]) -> None:
    model = Choosing(choice)
    with sambarun.load(sambac.compile(model, inputs=(X,))) as executable:
        for scale in (-3.0, 0.1, 1.0, 30.0):
            found = executable.run({"x": (X * scale).numpy()})["output"]
            assert_near(found, exactly(model)(exactly(X * scale)).detach().numpy())


def test_buffers_that_each_call_registers_train_as_in_torch() -> None:
    def registered(m: Keeping, y: torch.Tensor) -> None:
        m.register_buffer("mask", torch.ones(4).cumsum(0), persistent=False)
        y.mul_(m.mask)

    trains_as_in_torch(Keeping(None, registered))


def test_shapes_of_buffers_that_a_call_makes_are_told() -> None:
    def filled(m: Keeping, y: torch.Tensor) -> None:
        if m.made.numel() == 0:
            m.made = torch.ones(4)
        y.mul_(m.made)

    model = Keeping(None, filled)
    model.register_buffer("made", torch.empty(0))
    with pytest.warns(
        UserWarning, match=r"makes the buffers made \(float32\[0\] becomes float32\[4"
    ):
        sambac.compile(model, TRAIN, inputs=(X,))
    model(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sambac.compile(model, TRAIN, inputs=(X,))
    assert not isinstance(model.made, FakeTensor)
