"""ONNX files of PyTorch's exporter train as the module does: what its optimizer loses is told."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import sambac
import sambarun
from sambac import SGD, CompileOptions
from sambac.errors import CompileError


class Loss(nn.Module):
    """The mean of the squares of how far a network is from a target."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return ((self.net(x) - y) ** 2).mean()


class Constants(nn.Module):
    """Buffers, tensors of attributes and tables: nothing of that learns."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("mean", torch.rand(8))
        self.register_buffer("places", torch.rand(5, 8), persistent=False)
        self.deviation, self.table = torch.rand(8) + 0.5, torch.rand(9, 8)
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.linear((x - self.mean) / self.deviation + self.places) * self.scale
        return h + self.table[:5] * torch.tensor([1.5] * 8)


class Equals(nn.Module):
    """Parameters and buffers that begin with the same numbers, and biases of zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(8), nn.LayerNorm(8)
        self.register_buffer("ones", torch.ones(8))
        self.inner = nn.Linear(8, 8)
        self.outer = copy.deepcopy(self.inner)
        self.convolution = nn.Conv1d(5, 5, 1)
        self.down, self.up = (nn.Parameter(torch.zeros(8, 8)) for _ in range(2))
        nn.init.zeros_(self.convolution.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.outer(torch.tanh(self.inner(self.second(self.first(x) * self.ones))))
        return self.convolution(h) + x @ self.down + h @ self.up


class Tied(nn.Module):
    """A table that is read as it is and turned; a row of another one gets no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.kinds = nn.Embedding(11, 8), nn.Embedding(11, 8, padding_idx=3)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(self.table(x) + self.kinds(x))
        return F.cross_entropy(self.head(h).transpose(1, 2), y)


class Detached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.linear(x)
        h = h + (torch.round(4 * h) / 4 - h).detach()
        return h * h.detach() + F.layer_norm(h.detach(), (8,), self.linear.bias)


def numbers(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def exported(module: nn.Module, args: tuple[torch.Tensor, ...], **options: bool) -> onnx.ModelProto:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of modules that train, and of torchvision
        program = torch.onnx.export(module, args, dynamo=True, verbose=False, **options)
    assert program is not None
    return program.model_proto


def agree(module: nn.Module, args: tuple[torch.Tensor, ...], lacking: str = "") -> None:
    """Compare three steps, and all tensors of the state but one that files call otherwise."""
    torch.manual_seed(0)
    file = exported(module, args)
    options = CompileOptions(train=True, optimizers=(SGD(lr=0.1),))
    feeds = {info.name: arg.numpy() for info, arg in zip(file.graph.input, args, strict=True)}
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    with sambarun.load(sambac.compile(file, options)) as executable:
        for _ in range(3):
            (loss,) = executable.step(feeds).values()
            optimizer.zero_grad()
            expected = module(*args)
            expected.backward()
            optimizer.step()
            np.testing.assert_allclose(loss, expected.item(), rtol=1e-5)
        state = executable.state()
    for name, tensor in module.state_dict().items():
        if name not in lacking.split():
            np.testing.assert_allclose(state[name], tensor.numpy(), atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("net", "lacking"),
    [
        (Constants, ""),
        (Equals, "net.ones"),
        (Detached, ""),
        (
            lambda: nn.TransformerEncoder(
                nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True),
                2,
                enable_nested_tensor=False,
            ),
            "",
        ),
    ],
    ids=["constants", "equals", "detached", "transformer"],
)
def test_networks_train_as_the_module_does(net: Callable[[], nn.Module], lacking: str) -> None:
    torch.manual_seed(0)
    agree(Loss(net()), (numbers(2, 5, 8), numbers(5, 2, 8).reshape(2, 5, 8)), lacking)


def test_tied_tables_and_padding_train_as_the_module_does() -> None:
    torch.manual_seed(0)
    places = torch.arange(10).reshape(2, 5) % 6
    agree(Tied(), (places, places.flip(1)), "table.weight")


class Vanished(nn.Module):
    """A factor of one, and a normalisation of weights: the exporter computes with both."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.tensor(1.0))
        self.linear = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x * self.one)


def test_what_the_exporter_lost_is_told() -> None:
    args = (numbers(2, 5, 8), numbers(2, 5, 8))
    options = CompileOptions(train=True)
    for optimize, expected in ((True, 2), (False, 0)):
        file = exported(Loss(Vanished()), args, optimize=optimize)
        told = sambac.compile(file, options).warnings
        assert len(told) == expected, told
        assert not expected or "'net.one' of the exported module cannot be trained" in told[0]
        assert not expected or "in place of the parameters" in told[1]


def test_patterns_reach_weights_that_the_exporter_has_turned() -> None:
    args = (numbers(2, 5, 8), numbers(2, 5, 8))
    file = exported(Loss(nn.Linear(8, 8)), args)
    with pytest.raises(CompileError, match="every parameter is frozen"):
        sambac.compile(file, CompileOptions(train=True, freeze=("net.*",)))
