"""Operators that PyTorch's exporter translates wrongly: values beside PyTorch's own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest
import torch
from near import assert_near, exactly
from torch import nn
from torch.nn import functional
from torch_runs import Lambda, operators, run_training, training_source

import sambarun
from sambac import SGD, CompileOptions, compile
from sambac.errors import CompileError
from sambac.frontend.torch.export import RANDOM
from sambac.graph.origins import module_of

Results = dict[str, torch.Tensor]

_WEIGHT = torch.tensor([0.5, 1.0, 2.0, 0.1, 3.0])


def _cross_entropies(x: torch.Tensor, y: torch.Tensor, p: torch.Tensor) -> Results:
    results = {}
    for reduction, smoothing, weight in itertools.product(
        ("mean", "sum", "none"), (0.0, 0.1), (None, _WEIGHT)
    ):
        scales = None if weight is None else weight.to(x.dtype)
        settings = {"reduction": reduction, "label_smoothing": smoothing, "weight": scales}
        name = f"{reduction}_{smoothing}_{weight is not None}"
        loss = functional.cross_entropy
        results[f"hard_{name}"] = loss(x, y, ignore_index=1, **settings)
        results[f"soft_{name}"] = loss(x, p, **settings)
        results[f"one_{name}"] = loss(x[0, :, 0], y[0, 0], **settings)
        results[f"one_soft_{name}"] = loss(x[0, :, 0], p[0, :, 0], **settings)
    return results


def _on_large_logits(x: torch.Tensor, y: torch.Tensor) -> Results:
    binary = functional.binary_cross_entropy_with_logits
    weights = {"weight": _WEIGHT, "pos_weight": 2 * _WEIGHT}
    results = {"log_sigmoid": functional.logsigmoid(x), "softplus": functional.softplus(x)}
    for reduction in ("mean", "sum", "none"):
        results[f"binary_{reduction}"] = binary(x, y, reduction=reduction)
        results[f"weighted_{reduction}"] = binary(x, y, reduction=reduction, **weights)
    return results


_LOGITS = torch.tensor([[-200.0, -90, -20, -1, 0], [0.5, 20, 90, 200, 1000]])

LOSSES: dict[str, tuple[Callable[..., Results], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "cross entropy": (
        _cross_entropies,
        lambda: (
            torch.randn(3, 5, 4) * 4,
            torch.tensor([[0, 1, 2, 3], [1, 1, 4, 0], [4, 2, 1, 0]]),
            torch.softmax(torch.randn(3, 5, 4), 1),
        ),
    ),
    "large logits": (
        _on_large_logits,
        lambda: (_LOGITS, torch.tensor([[0.0, 1, 0, 1, 0.5], [1, 0, 1, 0, 0.3]])),
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str) -> None:
    torch.manual_seed(0)
    function, inputs = LOSSES[name][0], LOSSES[name][1]()
    got = run_training(training_source(Lambda(function), *inputs), *inputs)
    for output, want in function(*exactly(inputs)).items():
        # Each element by itself: beside those of 1000, the others must keep their digits.
        np.testing.assert_allclose(got[output], want.numpy(), rtol=2e-5, atol=1e-5, err_msg=output)


def _dropouts(model: ir.Model) -> list[tuple[str, float]]:
    """Return the module path and the rate of each dropout that drops."""
    found = []
    for node in model.graph:
        if node.op_type == "Dropout":
            rate, drops = (value.const_value for value in node.inputs[1:3] if value is not None)
            assert rate is not None
            assert drops is not None
            assert drops.numpy().all()
            found.append((module_of(node), round(float(rate.numpy()), 3)))
    return found


class _Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, 0.25, batch_first=True)
        self.lstm = nn.LSTM(8, 8, num_layers=2, dropout=0.3)
        self.rnn = nn.RNN(8, 8, num_layers=2, dropout=0.35)
        self.relu = nn.RNN(8, 8, num_layers=2, dropout=0.38, nonlinearity="relu")
        self.gru = nn.GRU(8, 8, num_layers=2, dropout=0.32)
        self.plain = nn.Dropout(0.4)
        self.channels = nn.Dropout1d(0.45)
        self.alpha = nn.AlphaDropout(0.15)
        self.none = nn.Dropout(0.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.rnn(self.lstm(self.layer(x))[0])[0]
        x = self.gru(self.relu(x)[0])[0]
        x = self.none(self.alpha(self.channels(self.plain(x))))
        if self.training:  # stochastic depth
            x = x * x.new_empty((x.shape[0], 1, 1)).bernoulli_(0.8)
        rate = 0.05 if self.training else 0.0
        return functional.scaled_dot_product_attention(x, x, x, dropout_p=rate)


def test_every_dropout_stays() -> None:
    source = training_source(_Dropping(), torch.randn(2, 3, 8))
    assert _dropouts(source.model) == [
        ("layer.self_attn", 0.25), ("layer.dropout1", 0.25), ("layer.dropout", 0.25),
        ("layer.dropout2", 0.25), ("lstm", 0.3), ("rnn", 0.35), ("relu", 0.38), ("gru", 0.32),
        ("plain", 0.4), ("channels", 0.45), ("alpha", 0.15), ("", 0.2), ("", 0.05),
    ]  # fmt: skip
    assert source.evaluation is not None
    assert not {"Dropout", "RandomUniformLike"}.intersection(operators(source.evaluation))


def test_random_numbers_do_not_become_constants() -> None:
    source = training_source(
        Lambda(lambda x: x * torch.bernoulli(torch.full((4,), 0.3))), torch.ones(4)
    )
    (node,) = (node for node in source.model.graph if node.op_type in RANDOM)
    assert node.domain == ""


def test_a_mask_has_ones_and_zeros() -> None:
    source = training_source(Lambda(lambda x: torch.empty_like(x).bernoulli_(0.5)), torch.ones(99))
    assert set(run_training(source, torch.ones(99))["output"]) == {0.0, 1.0}


def test_masks_that_keep_all_or_nothing() -> None:
    """No dropout scales by 1 / 0."""
    source = training_source(
        Lambda(lambda x: x * torch.empty_like(x).bernoulli_(1.0) + x.clone().bernoulli_(0.0)),
        torch.full((4,), 3.0),
    )
    assert "Dropout" not in operators(source.model)
    np.testing.assert_array_equal(run_training(source, torch.full((4,), 3.0))["output"], 3.0)


def test_operators_without_a_form_are_refused() -> None:
    with pytest.raises(CompileError, match=r"proj_size"):
        training_source(nn.LSTM(4, 3, proj_size=2), torch.randn(5, 2, 4))
    with pytest.raises(CompileError, match=r"cannot be exported.*: eigenvalues and singular"):
        training_source(Lambda(torch.linalg.eigvalsh), torch.eye(2))
    with pytest.raises(CompileError, match=r"cannot be exported.*: an operator of it has no"):
        training_source(Lambda(torch.special.airy_ai), torch.eye(2))


@pytest.mark.parametrize(
    ("function", "cure"),
    [
        (lambda x, i: x if torch.equal(i, i * 2) else i, "control flow depends on the values"),
        (lambda x, i: {x.sum()}, "collections and objects that hold them; return a dict"),
    ],
)
def test_what_cannot_be_recorded_is_said_with_a_cure(
    function: Callable[..., object], cure: str
) -> None:
    with pytest.raises(CompileError, match=cure):
        training_source(Lambda(function), torch.ones(3, 4, 2), torch.tensor([2, 4, 3]))


class _Uncertain(nn.Module):
    """A loss with variances below its least one, whose gradients pass by the clamp."""

    def __init__(self, **settings: object) -> None:
        super().__init__()
        self.root = nn.Parameter(torch.tensor([[1.0, 2.0, -0.5], [0.3, 1e-9, 0.0]]))
        self.mean = nn.Parameter(torch.tensor([[0.5, -1.0, 2.0], [1.0, 0.0, 3.0]]))
        self.settings = settings

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        loss = functional.gaussian_nll_loss
        by_row = loss(self.mean, x, self.root.square().sum(1), eps=0.1, **self.settings)
        return loss(self.mean, x, self.root.square(), eps=0.1, **self.settings).sum() + by_row.sum()


@pytest.mark.parametrize(
    "settings", [{}, {"reduction": "sum", "full": True}, {"reduction": "none"}]
)
def test_gaussian_likelihood(settings: dict[str, object]) -> None:
    _require_same_step(_Uncertain(**settings), {"x": torch.tensor([[0.0, 1.0, 2.0]] * 2)})


def _require_same_step(module: nn.Module, inputs: dict[str, torch.Tensor]) -> None:
    """Require the loss and the gradients of PyTorch in float64, which a step of size 1 shows."""
    exact = exactly(module)
    loss = exact(**exactly(inputs))
    loss.backward()
    options = CompileOptions(train=True, optimizers=(SGD(lr=1.0),))
    with sambarun.load(compile(module, options, inputs=inputs)) as executable:
        got = executable.step({name: tensor.numpy() for name, tensor in inputs.items()})
        states = executable.state()
    # What the loss sums is of the size of 1, though its sum may be small.
    assert_near(got["output"], loss, size=1, what="loss")
    for name, parameter in exact.named_parameters():
        assert parameter.grad is not None
        # The new value is a difference, and may be smaller than both parts.
        size = float(parameter.grad.abs().max())
        assert_near(states[name], parameter - parameter.grad, size=size, what=name)


class _Distant(nn.Module):
    """Distances from rows of which some coincide, or are as far in several of their elements."""

    def __init__(self, p: float, rows: int) -> None:
        super().__init__()
        self.p, shape = p, (2, 1, rows, 3)
        self.first = nn.Parameter(torch.arange(rows * 6.0).reshape(shape) % 7)
        self.second = nn.Parameter(torch.tensor([[0.0, 1, 2], [3, 3, 3], [6.5, 0, -4], [1, 0, 3]]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (torch.cdist(self.first, self.second.expand(2, 4, 3), p=self.p) * x).sum()


@pytest.mark.parametrize("p", [0.5, 1, 1.5, 2, 3, math.inf])
def test_distances_of_rows(p: float) -> None:
    module = _Distant(p, 5)
    with torch.no_grad():
        assert (torch.cdist(module.first, module.second, p=1.0) == 0).any()
    _require_same_step(module, {"x": torch.linspace(1, 3, 80).reshape(2, 2, 5, 4)})


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
def test_distances_of_many_rows() -> None:
    """PyTorch makes them of products there, which its exporter decomposes into other operators."""
    module = _Distant(2, 30)
    weights = torch.linspace(1, 3, 480).reshape(2, 2, 30, 4)
    _require_same_step(module, {"x": weights})
    program = torch.export.export(module, (weights,)).run_decompositions()
    with sambarun.load(compile(program)) as executable:
        (got,) = executable.run({"x": weights.numpy()}).values()
    assert_near(got, exactly(module)(exactly(weights)))


class _Normalized(nn.Module):
    def __init__(self, *, affine: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 3, 2, bias=False)
        self.norm = nn.BatchNorm2d(3, track_running_stats=False, affine=affine)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (self.norm(self.first(x)) * y).sum()


@pytest.mark.parametrize("affine", [True, False])
def test_gradients_flow_through_the_statistics_of_a_batch(affine: bool) -> None:
    torch.manual_seed(0)
    inputs = {"x": torch.randn(3, 2, 4, 4) + 4, "y": torch.randn(3, 3, 3, 3)}
    _require_same_step(_Normalized(affine=affine), inputs)


_TOKENS = torch.tensor([3, 0, 1, 1, 4, 0, 2])
_BAGS: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "rows": (lambda w, i: functional.embedding_bag(i, w), (_TOKENS[:6].reshape(2, 3),)),
    "padding": (
        lambda w, i, o: functional.embedding_bag(i, w, o, mode="mean", padding_idx=0),
        (_TOKENS, torch.tensor([0, 1, 2, 2, 4, 7])),
    ),
    "weighted": (
        lambda w, i, o, s: functional.embedding_bag(
            i, w, o, mode="sum", per_sample_weights=s, include_last_offset=True, padding_idx=-2
        ),
        (_TOKENS, torch.tensor([0, 2, 2, 7]), torch.linspace(-1, 2, 7)),
    ),
    "largest": (
        lambda w, i, o: functional.embedding_bag(i, w, o, mode="max", padding_idx=0),
        (_TOKENS, torch.tensor([0, 1, 2, 5, 5])),
    ),
    "padding behind the last": (
        lambda w, i, o: functional.embedding_bag(
            i, w, o, mode="sum", include_last_offset=True, padding_idx=2
        ),
        (_TOKENS, torch.tensor([0, 1, 2, 6])),
    ),
}


@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_a_place_outside_of_all_bags_is_refused(mode: str, padding: int | None) -> None:
    """Padding before the first bag, as PyTorch; what is behind the last, of which it makes much."""

    def bags(w: torch.Tensor, i: torch.Tensor, o: torch.Tensor) -> torch.Tensor:
        return functional.embedding_bag(
            i, w, o, mode=mode, include_last_offset=True, padding_idx=padding
        )

    weight, tokens = torch.randn(5, 4), torch.tensor([3, 0, 1, 4])
    inside = torch.tensor([0, 1, 4])
    with sambarun.load(compile(Lambda(bags), inputs=(weight, tokens, inside))) as executable:
        feeds = {"args_0": weight.numpy(), "args_1": tokens.numpy()}
        found = executable.run({**feeds, "args_2": inside.numpy()})["output"]
        assert_near(found, bags(weight.double(), tokens, inside))
        for outside in ([1, 2, 4], [0, 1, 3]):
            with pytest.raises(sambarun.RunError, match=r"Index .* is out of range"):
                executable.run({**feeds, "args_2": torch.tensor(outside).numpy()})


class _Bagging(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function, self.weight = function, nn.Parameter(torch.randn(5, 4))

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.function(self.weight, *args).pow(2).sum()


@pytest.mark.parametrize("name", _BAGS)
def test_bags_of_embeddings(name: str) -> None:
    torch.manual_seed(0)
    function, inputs = _BAGS[name]
    module = _Bagging(function)
    exact = exactly(module)
    loss = exact(*exactly(inputs))
    loss.backward()
    options = CompileOptions(train=True, optimizers=(SGD(lr=1.0),))
    program = compile(module, options, inputs=inputs)
    with sambarun.load(program) as executable:
        feeds = {f"args_{index}": tensor.numpy() for index, tensor in enumerate(inputs)}
        got = executable.step(feeds)
        weight = executable.state()["weight"]
    assert_near(got["output"], loss, what="loss")
    size = float(exact.weight.grad.abs().max())
    assert_near(weight, exact.weight - exact.weight.grad, size=size, what="weight")
