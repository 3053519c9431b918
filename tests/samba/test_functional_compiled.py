"""Models made of samba's functions are compiled, and the device gives what the host gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import sambaflow.samba as samba
import sambaflow.samba.functional as f
from sambaflow.samba import utils


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.bias = nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> object:
        y = samba.addmm(self.bias, x, self.weight, is_transposed=True)
        scores = samba.matmul(y, samba.transpose(y, -2, -1))
        causal = samba.triu_fill(scores, float("-inf"))
        return samba.functional.softmax(causal, dim=-1)


def test_functions_run_on_the_device(tmp_path: Path) -> None:
    samba.set_seed(0)
    model = _Attention()
    samba.from_torch_model_(model)
    x, config = samba.randn(2, 3, 4, name="x"), {"output_folder": str(tmp_path)}
    pef = samba.session.compile(model, (x,), config_dict=config, inference=True)
    found = samba.session.run((x,), utils.trace_graph(model, (x,), pef=pef))[0]
    assert type(found) is samba.SambaTensor
    assert torch.allclose(found, model(x), atol=1e-5)
    assert found[0, 0].tolist() == [1, 0, 0]


_INDEX = torch.tensor([2, 0])
_MASK = torch.tensor([[True, False, True, False]])

_FUNCTIONS: Mapping[str, Callable[[Any, Tensor, Tensor], Tensor]] = {
    "abs": lambda f, x, w: f.abs(x * w),
    "add": lambda f, x, w: f.add(x, w, alpha=2),
    "addmm": lambda f, x, w: f.addmm(w[0], x, w, is_transposed=True),
    "argmax": lambda f, x, w: f.argmax(x + w, 1),
    "bitwise_not": lambda f, x, w: f.bitwise_not((x > w).int()),
    "bmm": lambda f, x, w: f.bmm(x[None], w.T[None]),
    "cat": lambda f, x, w: f.cat([x, w], 1),
    "conv2d": lambda f, x, w: f.conv2d(x[None, None], w[None, None, :2, :2], padding=1),
    "cross_entropy": lambda f, x, w: f.cross_entropy(x * w, torch.tensor([1, 0, 3, 2])),
    "cumsum": lambda f, x, w: f.cumsum(x * w, 1),
    "div": lambda f, x, w: f.div(x, w),
    "dropout": lambda f, x, w: f.dropout(x * w, 1.0),
    "expand": lambda f, x, w: f.expand((x * w)[None], 2, -1, -1),
    "flatten": lambda f, x, w: f.flatten(x * w),
    "gelu": lambda f, x, w: f.gelu(x * w),
    "index_select": lambda f, x, w: f.index_select(x * w, 1, _INDEX),
    "layer_norm": lambda f, x, w: f.layer_norm(x, (4,), w[0], w[1]),
    "linear": lambda f, x, w: f.linear(x, w, w[0]),
    "logical_or": lambda f, x, w: f.logical_or(x > 0, w > 0),
    "masked_fill": lambda f, x, w: f.masked_fill(x * w, _MASK, -1.0),
    "matmul": lambda f, x, w: f.matmul(x, w),
    "mul": lambda f, x, w: f.mul(x, w),
    "sigmoid": lambda f, x, w: f.sigmoid(x * w),
    "triu_fill": lambda f, x, w: f.triu_fill(x * w, 3.0),
    "sn_gather": lambda f, x, w: f.sn_gather(x * w, _INDEX[:, None], [0], [2]),
    "sn_scatter": lambda f, x, w: f.sn_scatter(x, w[:2, :, None], _INDEX[:, None], [1]),
    "sn_zipmapreduce": lambda f, x, w: f.sn_zipmapreduce(
        lambda loop, a, b: f.sn_select(a > b, f.sn_fma(a, b, a), f.sn_iteridx(loop, 0) * a),
        [x, w],
        "SUM",
        [1],
    ),
}
"""What the API pages name, each of a tensor and a weight [4, 4]; `f` has the functions."""


class _Torch:
    """Torch's functions, by the names of samba's; written out where torch has none."""

    def __getattr__(self, name: str) -> object:
        homes = (nn.functional, torch, Tensor)
        return next(
            (getattr(home, name) for home in homes if hasattr(home, name)), getattr(f, name)
        )

    def addmm(self, bias: Tensor, x: Tensor, w: Tensor, *, is_transposed: bool) -> Tensor:
        return bias + x @ (w.T if is_transposed else w)

    def triu_fill(self, x: Tensor, value: float) -> Tensor:
        rows, columns = torch.arange(4)[:, None], torch.arange(4)
        return torch.where(columns > rows, torch.tensor(value), x)


class _Functions(nn.Module):
    """Every function of `home` once, with a weight of its own."""

    def __init__(self, home: object = f) -> None:
        super().__init__()
        self.home = home
        generator = torch.Generator().manual_seed(0)
        self.weights = nn.ParameterDict(
            {name: torch.randn(4, 4, generator=generator) + 2 for name in _FUNCTIONS}
        )

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        found = [make(self.home, x, self.weights[name]) for name, make in _FUNCTIONS.items()]
        smooth = [result.square().mean() for result in found if result.requires_grad]
        return torch.stack(smooth).sum(), *found


def test_documented_functions_and_their_gradients_are_those_of_torch(tmp_path: Path) -> None:
    x = samba.randn(4, 4, name="x", generator=torch.Generator().manual_seed(1))
    host, model = _Functions(_Torch()), samba.from_torch_model(_Functions())
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    config = {"output_folder": str(tmp_path)}
    pef = samba.session.compile(model, (x,), optimizer, config_dict=config, loss_indices=[0])
    outputs = utils.trace_graph(model, (x,), optimizer, pef=pef, loss_indices=[0])
    found = samba.session.run((x,), outputs)
    expected = host(x.torch())
    expected[0].backward()
    torch.testing.assert_close(found[0].torch(), expected[0])
    for name, ours, theirs in zip(_FUNCTIONS, found[1:], expected[1:], strict=True):
        message = f"{name} on the device".format
        assert ours.dtype is theirs.dtype, name
        torch.testing.assert_close(ours.torch(), theirs, rtol=1e-5, atol=1e-5, msg=message)
        gradient = host.weights[name].grad
        assert (gradient is not None) == theirs.requires_grad
        if gradient is not None:
            torch.testing.assert_close(model.weights[name].sn_grad, gradient, rtol=1e-4, atol=1e-5)
