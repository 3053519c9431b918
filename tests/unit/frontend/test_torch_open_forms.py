"""What is said where open sizes are given in another form than the inputs have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

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


class Pair(NamedTuple):
    first: Any
    second: Any


def test_named_tuples_are_told_by_name() -> None:
    """PyTorch takes the class itself, and no other tuple."""
    x = torch.randn(3, 4)

    class Added(nn.Module):
        def forward(self, pair: Pair) -> Tensor:
            added: Tensor = pair.first + pair.second
            return added

    inputs, rows = {"pair": Pair(x, x + 1)}, Dim("n")
    with pytest.raises(sambac.CompileError, match=r"which it is \{'pair': Pair\(\{\}, \{\}\)\}"):
        sambac.compile(Added(), inputs=inputs, dynamic_shapes={"pair": ({0: rows}, {0: rows})})
    shapes: dict[str, object] = {"pair": Pair({0: rows}, {0: rows})}
    program = sambac.compile(Added(), inputs=inputs, dynamic_shapes=shapes)
    assert {symbol.shape for symbol in program.symbols} == {("n", 4)}
