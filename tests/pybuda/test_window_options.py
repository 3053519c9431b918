"""Each option of convolutions and pools, on the device, beside torch in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from near import assert_near
from torch.nn import functional

import pybuda
from pybuda import op

_DRAWN = torch.Generator().manual_seed(0)
IMAGES = torch.randn(1, 4, 9, 8, generator=_DRAWN)
FILTERS = torch.randn(4, 4, 3, 3, generator=_DRAWN)
GROUPED = torch.randn(4, 2, 3, 3, generator=_DRAWN)
BIAS = torch.randn(4, generator=_DRAWN)


class Window(pybuda.PyBudaModule):
    """One operator; `weights` is none for pools."""

    def __init__(self, operator: Callable[..., pybuda.Tensor], weights: object, options) -> None:
        super().__init__("window")
        self.operator, self.options = operator, dict(options)
        self.operands = [] if weights is None else [pybuda.Parameter(weights)]
        if "bias" in self.options:
            self.options["bias"] = self.added = pybuda.Parameter(self.options["bias"])

    def forward(self, images: pybuda.Tensor) -> pybuda.Tensor:
        return self.operator("", images, *self.operands, **self.options)


def beside(
    name: str, weights: torch.Tensor | None, options: Mapping[str, Any], **theirs: Any
) -> None:
    """Compare an operator with torch's function, whose options may be called otherwise."""
    function: Callable[..., torch.Tensor] = {
        "Conv2d": functional.conv2d, "Conv2dTranspose": functional.conv_transpose2d,
        "MaxPool2d": functional.max_pool2d, "AvgPool2d": functional.avg_pool2d,
    }[name]  # fmt: skip
    wanted = {"padding": 1, **options, **theirs}
    last = wanted.pop("channel_last", False)
    operands = [] if weights is None else [weights.double()]
    if "bias" in wanted:
        wanted["bias"] = wanted["bias"].double()
    expected = function(IMAGES.double(), *operands, **wanted)
    images = IMAGES.movedim(1, -1) if last else IMAGES
    (found,) = Window(getattr(op, name), weights, options).run(images)
    assert_near(found.value(), expected.movedim(1, -1) if last else expected)


@pytest.mark.parametrize(
    "options",
    [
        {"bias": BIAS},
        {"stride": 2},
        {"padding": 2},
        {"dilation": 2},
        {"groups": 2},
        {"channel_last": True},
    ],
    ids=lambda options: "".join(options),
)
@pytest.mark.parametrize("name", ["Conv2d", "Conv2dTranspose"])
def test_convolutions(name: str, options: Mapping[str, Any]) -> None:
    """A padding of `same` is half of the window, whatever the dilation."""
    grouped = GROUPED if "groups" in options else FILTERS
    beside(name, grouped, options)


@pytest.mark.parametrize(
    "options",
    [
        {"stride": 2},
        {"padding": 0},
        {"stride": 3, "ceil_mode": True},
        {"channel_last": True},
        {"kernel_size": (2, 3), "padding": 0},
    ],
    ids=lambda options: "".join(options),
)
@pytest.mark.parametrize("name", ["MaxPool2d", "AvgPool2d"])
def test_pools(name: str, options: Mapping[str, Any]) -> None:
    given = {"kernel_size": 3, "stride": 1, **options}
    beside(name, None, given)


def test_what_only_one_pool_takes() -> None:
    size = {"kernel_size": 3, "stride": 1}
    beside("MaxPool2d", None, {**size, "dilation": 2})
    beside("AvgPool2d", None, {**size, "count_include_pad": False})
    beside("AvgPool2d", None, {**size, "divisor_override": 5})
    for idle in ({"max_pool_add_sub_surround": True}, {"max_pool_add_sub_surround_value": 9.0}):
        plain, other = (
            Window(op.MaxPool2d, None, {**size, **more}).run(IMAGES)[0].value()
            for more in ({}, idle)
        )
        assert torch.equal(plain, other)
