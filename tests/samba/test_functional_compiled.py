"""Models made of samba's functions are compiled, and the device gives what the host gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

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

_FUNCTIONS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "abs": lambda x, w: f.abs(x * w),
    "add": lambda x, w: f.add(x, w, alpha=2),
    "addmm": lambda x, w: f.addmm(w[0], x, w, is_transposed=True),
    "argmax": lambda x, w: f.argmax(x + w, 1),
    "bitwise_not": lambda x, w: f.bitwise_not((x > w).int()),
    "bmm": lambda x, w: f.bmm(x[None], w.T[None]),
    "cat": lambda x, w: f.cat([x, w], 1),
    "conv2d": lambda x, w: f.conv2d(x[None, None], w[None, None, :2, :2], padding=1),
    "cross_entropy": lambda x, w: f.cross_entropy(x * w, torch.tensor([1, 0, 3, 2])),
    "cumsum": lambda x, w: f.cumsum(x * w, 1),
    "div": lambda x, w: f.div(x, w),
    "dropout": lambda x, w: f.dropout(x * w, 0.5, training=False),
    "expand": lambda x, w: f.expand((x * w)[None], 2, -1, -1),
    "flatten": lambda x, w: f.flatten(x * w),
    "gelu": lambda x, w: f.gelu(x * w),
    "index_select": lambda x, w: f.index_select(x * w, 1, _INDEX),
    "layer_norm": lambda x, w: f.layer_norm(x, (4,), w[0], w[1]),
    "linear": lambda x, w: f.linear(x, w, w[0]),
    "logical_or": lambda x, w: f.logical_or(x > 0, w > 0),
    "masked_fill": lambda x, w: f.masked_fill(x * w, _MASK, -1.0),
    "matmul": lambda x, w: f.matmul(x, w),
    "mul": lambda x, w: f.mul(x, w),
    "sigmoid": lambda x, w: f.sigmoid(x * w),
    "triu_fill": lambda x, w: f.triu_fill(x * w, 3.0),
    "sn_gather": lambda x, w: f.sn_gather(x * w, _INDEX[:, None], [0], [2]),
    "sn_scatter": lambda x, w: f.sn_scatter(x, w[:2, :, None], _INDEX[:, None], [1]),
    "sn_zipmapreduce": lambda x, w: f.sn_zipmapreduce(
        lambda loop, a, b: f.sn_select(a > b, f.sn_fma(a, b, a), f.sn_iteridx(loop, 0) * a),
        [x, w],
        "SUM",
        [1],
    ),
}
"""What the API pages name, each of a tensor and a weight [4, 4]."""


class _Functions(nn.Module):
    """Every function once, with a weight of its own."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weights = nn.ParameterDict(
            {name: torch.randn(4, 4, generator=generator) + 2 for name in _FUNCTIONS}
        )

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        found = [function(x, self.weights[name]) for name, function in _FUNCTIONS.items()]
        smooth = [result.square().mean() for result in found if result.requires_grad]
        return torch.stack(smooth).sum(), *found


def test_documented_functions_and_their_gradients_are_those_of_torch(tmp_path: Path) -> None:
    x = samba.randn(4, 4, name="x", generator=torch.Generator().manual_seed(1))
    host, model = _Functions(), samba.from_torch_model(_Functions())
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
