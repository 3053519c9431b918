"""Operators along the axis of a tensor that has none, which PyTorch lets a number have."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.utils import _pytree as pytree
from torch_runs import TRAIN, Lambda, run_evaluation, run_training, training_source

from sambac.frontend import load
from sambac.options import CompileOptions

Function = Callable[[torch.Tensor], object]

_ALONG: dict[str, Function] = {
    "all": lambda x: (x > 0).all(0),
    "amax": lambda x: x.amax(0),
    "aminmax": lambda x: tuple(x.aminmax(dim=0)),
    "any": lambda x: (x > 0).any(-1, keepdim=True),
    "argmax": lambda x: x.argmax(0),
    "count_nonzero": lambda x: x.count_nonzero(0),
    "cumprod": lambda x: x.cumprod(0),
    "cumsum": lambda x: x.cumsum(-1),
    "flip": lambda x: x.flip(0),
    "gather": lambda x: x.gather(0, torch.tensor(0)),
    "index_select": lambda x: x.index_select(0, torch.tensor([0])),
    "log_softmax": lambda x: x.log_softmax(0),
    "logcumsumexp": lambda x: x.logcumsumexp(0),
    "logsumexp": lambda x: x.logsumexp(0),
    "max": lambda x: tuple(x.max(0)),
    "max of the first": lambda x: x.max(0, keepdim=True).values,
    "mean": lambda x: x.mean(0, keepdim=True),
    "min": lambda x: tuple(x.min(-1)),
    "nansum": lambda x: x.nansum(0),
    "norm": lambda x: torch.linalg.vector_norm(x, 3.0, 0),
    "prod": lambda x: x.prod(0),
    "safe softmax": lambda x: torch.ops.aten._safe_softmax(x, -1),
    "softmax": lambda x: functional.softmax(x, 0),
    "sort": lambda x: tuple(x.sort(0)),
    "std": lambda x: x.std(0, correction=0),
    "std_mean": lambda x: torch.std_mean(x, 0, correction=0),
    "sum": lambda x: x.sum(0),
    "topk": lambda x: tuple(x.topk(1)),
    "var": lambda x: x.var([0], correction=0),
    "var_mean": lambda x: torch.var_mean(x, 0, correction=0),
}


def _all_of_them(x: torch.Tensor) -> dict[str, object]:
    return {name: function(x) for name, function in _ALONG.items()}


@pytest.mark.parametrize("training", [False, True])
def test_numbers_have_axes(training: bool) -> None:
    """In one module, as each export takes its time; outputs have the names of the functions."""
    module, x = Lambda(_all_of_them).train(training), torch.tensor(1.5)
    source = load(module, TRAIN if training else CompileOptions(), (x,))
    assert source.signature.inputs == ("args_0",)
    found = (run_training if training else run_evaluation)(source, x)
    wanted = pytree.tree_leaves(_all_of_them(x))
    assert len(found) == len(wanted)
    for (name, got), want in zip(found.items(), wanted, strict=True):
        assert got.shape == want.shape, name
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-6, err_msg=name)


# What returns what it is given, for which the exporter does nothing.
_SAME: dict[str, tuple[Function, torch.Tensor]] = {
    "clone": (lambda x: x.clone(), torch.ones(2)),
    "clamp": (lambda x: x.clamp(None, torch.tensor(9.0)), torch.ones(2)),
    "expand": (lambda x: x.expand(2), torch.ones(2)),
    "mean": (lambda x: x.mean(0), torch.tensor(1.0)),
    "repeat": (lambda x: x.repeat(()), torch.tensor(1.0)),
    "t": (lambda x: x.t(), torch.ones(2)),
    "transpose": (lambda x: x.transpose(0, -1), torch.tensor(1.0)),
}


class _Same(torch.nn.Module):
    def __init__(self, function: Function, content: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(content * 2)
        self.register_buffer("shift", content * 3)

    def forward(self, x: torch.Tensor) -> tuple[object, ...]:
        return self.function(x), self.function(self.weight) * x, self.function(self.shift) + x


@pytest.mark.parametrize("name", _SAME)
def test_what_changes_nothing_keeps_names(name: str) -> None:
    function, x = _SAME[name]
    module = _Same(function, x)
    source = training_source(module, x)
    assert source.signature.inputs == ("x",)
    assert source.roles is not None
    assert source.roles.parameters == ("weight",)
    assert source.roles.buffers == ("shift",)
    for got, want in zip(run_training(source, x).values(), module(x), strict=True):
        np.testing.assert_array_equal(got, want.detach().numpy())
