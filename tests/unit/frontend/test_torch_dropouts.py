"""Dropouts of rate 0, which the exporter leaves out, are told."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import sambac
from sambac.frontend.torch import load_torch

TRAIN = sambac.CompileOptions(train=True, optimizers=(sambac.SGD(),))


class Net(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 2, 1), layer)
        self.last = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x)).square().mean()


def told(layer: nn.Module) -> tuple[str, ...]:
    return load_torch(Net(layer), TRAIN, (torch.ones(2, 1, 3, 3),)).warnings


@pytest.mark.parametrize(
    "kind", [nn.Dropout, nn.Dropout2d, nn.AlphaDropout, nn.FeatureAlphaDropout]
)
def test_a_rate_of_zero_is_told_with_the_path_of_the_module(kind):
    (warning,) = told(kind(0.0))
    assert warning.startswith("The dropout of first.1 has the rate 0 and is left out: no run can")


def test_a_function_has_the_path_of_the_module_that_calls_it():
    class Calls(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.dropout(x, 0.0)

    (warning,) = told(Calls())
    assert "first.1" in warning


@pytest.mark.parametrize("layer", [nn.Dropout(0.1), nn.Dropout(1.0), nn.Identity()])
def test_other_models_have_nothing_to_tell(layer):
    assert told(layer) == ()
