"""Whole modules: the exported graphs compute what the module computes, in both of its modes."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch_runs import run, run_evaluation, run_training, training_source

from sambac.frontend import load
from sambac.options import CompileOptions

Case = tuple[nn.Module, tuple[torch.Tensor, ...]]


class _Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3))

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layers(x)
        return {"logits": logits, "loss": functional.cross_entropy(logits, target)}


class _Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4, momentum=0.3), nn.ReLU(),
            nn.MaxPool2d(2), nn.Conv2d(4, 5, 2), nn.BatchNorm2d(5, affine=False), nn.SiLU(),
        )  # fmt: skip
        self.head = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x).mean((2, 3)))


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 3, num_layers=2, bidirectional=True, batch_first=True)
        self.rnn = nn.RNN(6, 5, num_layers=2, bidirectional=True)
        self.relu = nn.RNN(10, 10, nonlinearity="relu")
        self.gru = nn.GRU(10, 2, bias=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, (h, c) = self.lstm(x)
        z, last = self.rnn(y)
        return self.gru(self.relu(z)[0])[0], h, c, last


class _Decoder(nn.Module):
    """A transformer with causal attention and a head tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        logits = self.head(self.layers(self.embedding(tokens), mask=mask, is_causal=True))
        loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=0)
        return {"loss": loss, "logits": logits}


class _Block(nn.Sequential):
    def __init__(self, inner: int, outer: int) -> None:
        super().__init__(nn.Conv2d(inner, outer, 3, padding=1), nn.GroupNorm(2, outer), nn.ReLU())


class _UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.middle, self.up = _Block(1, 4), _Block(4, 4), _Block(8, 4)
        self.grow = nn.ConvTranspose2d(4, 4, 2, stride=2)
        self.head = nn.Conv2d(4, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        fine = self.down(x)
        coarse = self.grow(self.middle(functional.max_pool2d(fine, 2)))
        wide = functional.interpolate(self.middle(functional.avg_pool2d(fine, 2)), scale_factor=2)
        return self.head(self.up(torch.cat([fine, coarse + wide], 1)))


CASES: dict[str, Callable[[], Case]] = {
    "perceptron": lambda: (_Perceptron(), (torch.randn(5, 6), torch.tensor([0, 1, 2, 1, 0]))),
    "convolutional": lambda: (_Convolutional(), (torch.randn(4, 3, 9, 9),)),
    "recurrent": lambda: (_Recurrent(), (torch.randn(2, 5, 4),)),
    "decoder": lambda: (_Decoder(), (torch.randint(0, 11, (2, 6)), torch.randint(0, 11, (2, 6)))),
    "unet": lambda: (_UNet(), (torch.randn(2, 1, 8, 8),)),
}


def _flat(result: object) -> list[np.ndarray]:
    if isinstance(result, torch.Tensor):
        return [result.detach().numpy()]
    assert isinstance(result, (dict, tuple))
    items = result.values() if isinstance(result, dict) else result
    return [array for item in items for array in _flat(item)]


def _assert_equal(got: dict[str, np.ndarray], names: tuple[str, ...], want: object) -> None:
    for name, array in zip(names, _flat(want), strict=True):
        np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", CASES)
def test_both_modes(name: str) -> None:
    torch.manual_seed(0)
    module, inputs = CASES[name]()
    reference = copy.deepcopy(module)
    source = training_source(module, *inputs)
    outputs = source.signature.outputs
    _assert_equal(run_evaluation(source, *inputs), outputs, reference.eval()(*inputs))
    trained = run_training(source, *inputs)
    _assert_equal(trained, outputs, reference.train()(*inputs))
    buffers = dict(reference.named_buffers())
    assert source.roles is not None
    assert set(source.roles.updates) == set(buffers)
    for buffer, output in source.roles.updates.items():
        np.testing.assert_allclose(trained[output], buffers[buffer].numpy(), rtol=1e-5, atol=1e-6)


def test_inference_is_the_mode_that_evaluates() -> None:
    module, inputs = _Convolutional(), (torch.randn(4, 3, 9, 9),)
    source = load(module, CompileOptions(), inputs)
    got = run(source.model, {"x": inputs[0].numpy()})
    np.testing.assert_allclose(got["output"], _flat(module.eval()(*inputs))[0], atol=1e-5)
    assert source.roles is not None
    assert source.roles.updates == {}
    assert source.evaluation is None


def test_a_part_in_evaluation_mode_stays_in_it() -> None:
    """A frozen BatchNorm in a module that trains."""
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    module[1].eval()
    source = training_source(module, torch.randn(5, 3))
    assert source.roles is not None
    assert source.roles.updates == {}


def test_a_module_that_evaluates_trains_as_a_whole() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval()
    source = training_source(module, torch.randn(5, 3))
    assert source.roles is not None
    assert len(source.roles.updates) == 3


def test_attention_whose_parameters_are_frozen_evaluates() -> None:
    """PyTorch would call one fused operator there, which has no ONNX form."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True).requires_grad_(False)
    x = torch.randn(2, 5, 8)
    source = load(layer, CompileOptions(), (x,))
    want = layer.eval()(x).numpy()
    np.testing.assert_allclose(run(source.model, {"src": x.numpy()})["output"], want, atol=1e-5)


class _InModes(nn.Module):
    """Computes `function(x @ weight, self)`, which may depend on the mode."""

    def __init__(self, function: Callable[[torch.Tensor, nn.Module], torch.Tensor]) -> None:
        super().__init__()
        self.weight, self.function = nn.Parameter(torch.ones(3, 3)), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x @ self.weight, self)


_DRAWS = "draws"
_SAME: dict[str, Callable[[torch.Tensor, nn.Module], torch.Tensor]] = {
    "a constant": lambda x, _: x + torch.tensor([1.0, 2.0, 3.0]),
    "an embedding": lambda x, _: functional.embedding(x[0].long() - 2, x),
    "dropout that drops nothing": lambda x, _: functional.dropout(x, 0.5, training=False),
}
_OTHER: dict[str, Callable[[torch.Tensor, nn.Module], torch.Tensor]] = {
    "operators": lambda x, module: x.sin() if module.training else x.cos(),
    "a number": lambda x, module: x * (2.0 if module.training else 3.0),
    "the values of a constant": lambda x, module: (
        x + torch.tensor([1.0, 2.0, 3.0] if module.training else [3.0, 2.0, 1.0])
    ),
    "dropout": lambda x, module: functional.dropout(x, 0.5, module.training),
    "a detached tensor": lambda x, _: x * x.detach(),
    "a region without gradients": lambda x, _: x * _without_gradients(x),
    "a padded row": lambda x, _: functional.embedding(x[0].long() - 2, x, padding_idx=1),
    _DRAWS: lambda x, _: x * torch.bernoulli(x, 0.5),
}


def _without_gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return x.square()


@pytest.mark.parametrize("name", _SAME)
def test_what_does_not_depend_on_the_mode_is_exported_once(name: str) -> None:
    assert training_source(_InModes(_SAME[name]), torch.ones(3, 3)).evaluation is None


@pytest.mark.parametrize("name", _OTHER)
def test_what_depends_on_the_mode_is_exported_for_each(name: str) -> None:
    module, x = _InModes(_OTHER[name]), torch.ones(3, 3)
    source = training_source(module, x)
    assert source.evaluation is not None
    if name != _DRAWS:
        outputs = source.signature.outputs
        _assert_equal(run_evaluation(source, x), outputs, module.eval()(x))


class _Counting(nn.Linear):
    """Writes a buffer in both modes, which an evaluation leaves out."""

    def __init__(self) -> None:
        super().__init__(3, 4)
        self.calls = nn.Buffer(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(x) + self.calls


def test_a_module_that_writes_buffers_is_exported_for_each_mode() -> None:
    source = training_source(_Counting(), torch.randn(5, 3))
    assert source.evaluation is not None
    assert len(source.evaluation.graph.outputs) == 1
