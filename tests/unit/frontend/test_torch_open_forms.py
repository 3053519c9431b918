"""What is said where open sizes are given in another form than the inputs have."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import sambac


class Kept:
    """An object that holds tensors, as the cache of a model does."""

    def __init__(self, x: Tensor) -> None:
        self.layers = [x, x + 1, x + 2]


class Sum(nn.Module):
    def forward(self, x: Tensor, pair: tuple[Tensor, Tensor], kept: Kept) -> Tensor:
        return x + pair[0] + pair[1] + sum(kept.layers)


@pytest.mark.parametrize(
    ("shapes", "told"),
    [
        (
            lambda n: {"x": {0: n}, "pair": [{0: n}, {0: n}], "kept": [[{}] * 3]},
            r"which it is \{'x': \{\}, 'pair': \(\{\}, \{\}\), 'kept': .*\* 3\]\}, .*tuple",
        ),
        (lambda n: {"x": {0: n}, "pair": ({0: n}, {0: n}), "kept": [{}]}, "another form"),
        (
            lambda n: {"x": {}, "pair": ({}, {2: n}), "kept": [[{}] * 3]},
            r"leave axis 2 of pair\[1\] open, which has 2 axes",
        ),
    ],
    ids=["list", "object", "axis"],
)
def test_the_form_of_open_sizes_is_told(
    shapes: Callable[[object], dict[str, object]], told: str
) -> None:
    x = torch.randn(3, 4)
    inputs = {"x": x, "pair": (x + 1, x + 2), "kept": Kept(x)}
    with pytest.raises(sambac.CompileError, match=told):
        sambac.compile(Sum(), inputs=inputs, dynamic_shapes=shapes(Dim("n")))
