"""Draws of yes and no, in the ways in which modules write them, are masks that the host makes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from near import assert_near, exactly
from torch import Tensor, nn
from torch.nn import functional
from torch_runs import Lambda, operators, run_training, training_source

import sambac
import sambarun

Draw = Callable[[Tensor], Tensor]


def _drop_path(x: Tensor) -> Tensor:
    """One number for each example, as transformers draw them."""
    drawn = 0.75 + torch.rand((x.shape[0], 1), dtype=x.dtype)
    drawn.floor_()
    return drawn.expand(x.shape)


# What draws -> how many of its results are ones.
_DRAWS: dict[str, tuple[Draw, float]] = {
    "drop path": (_drop_path, 0.75),
    "floor": (lambda x: torch.floor(torch.rand_like(x) + 0.25), 0.25),
    "less": (lambda x: (torch.rand_like(x) < 0.25).float(), 0.25),
    "at most": (lambda x: (torch.rand(x.shape) <= 0.25).float(), 0.25),
    "greater": (lambda x: torch.where(torch.rand_like(x) > 0.25, x, 0.0), 0.75),
    "at least": (lambda x: (torch.rand_like(x) >= 0.25).float(), 0.75),
    "bernoulli": (lambda x: torch.bernoulli(torch.full(x.shape, 0.75)), 0.75),
    "new bernoulli": (lambda x: x.new_empty(x.shape).bernoulli_(0.75), 0.75),
    "uniform": (lambda x: (torch.empty_like(x).uniform_() < 0.25).float(), 0.25),
}


def test_one_operator_draws() -> None:
    x = torch.ones(4000, 2)
    module = Lambda(lambda x: {name: draw(x) * 2 for name, (draw, _) in _DRAWS.items()})
    source = training_source(module, x)
    assert not {"Bernoulli", "RandomUniform", "RandomUniformLike"}.intersection(
        operators(source.model)
    )
    found = run_training(source, x)
    for name, (_, rate) in _DRAWS.items():
        assert set(np.unique(found[name])) <= {np.float32(0), np.float32(2)}, name
        assert abs(found[name].mean() / 2 - rate) < 0.05, name


# What draws from x, whose rows are zeros, halves and ones -> means and deviations of the rows.
_ROOT = 12**-0.5
_DISTRIBUTIONS: dict[str, tuple[Draw, list[float], list[float]]] = {
    "bernoulli": (torch.bernoulli, [0, 0.5, 1], [0, 0.5, 0]),
    "bernoulli of half": (lambda x: torch.bernoulli(x.half()), [0, 0.5, 1], [0, 0.5, 0]),
    "bernoulli by tensor": (
        lambda x: torch.empty_like(x).bernoulli_(x), [0, 0.5, 1], [0, 0.5, 0],
    ),
    "bernoulli by number": (lambda x: torch.zeros_like(x).bernoulli_(0.5), [0.5] * 3, [0.5] * 3),
    "distribution": (
        lambda x: torch.distributions.Bernoulli(x).sample(), [0, 0.5, 1], [0, 0.5, 0],
    ),
    "normal": (lambda x: torch.empty_like(x).normal_(), [0] * 3, [1] * 3),
    "normal by numbers": (lambda x: torch.empty_like(x).normal_(3, 0.5), [3] * 3, [0.5] * 3),
    "normal by deviations": (lambda x: torch.normal(2.0, x), [2] * 3, [0, 0.5, 1]),
    "normal by means": (lambda x: torch.normal(x, 0.5), [0, 0.5, 1], [0.5] * 3),
    "normal by tensors": (lambda x: torch.normal(x[:, :1], 2 * x), [0, 0.5, 1], [0, 1, 2]),
    "uniform": (lambda x: torch.empty_like(x).uniform_(), [0.5] * 3, [_ROOT] * 3),
    "uniform between": (
        lambda x: torch.empty_like(x).uniform_(-1, 3), [1] * 3, [4 * _ROOT] * 3,
    ),
    "uniform of new": (
        lambda x: x.new_empty(x.shape, dtype=torch.float64).uniform_(), [0.5] * 3, [_ROOT] * 3,
    ),
    "no generator": (lambda x: torch.rand(x.shape, generator=None), [0.5] * 3, [_ROOT] * 3),
    "normal of no generator": (lambda x: torch.randn(x.shape, generator=None), [0] * 3, [1] * 3),
    "whole of no generator": (
        lambda x: torch.randint(5, x.shape, generator=None), [2] * 3, [2**0.5] * 3,
    ),
    "whole between, of no generator": (
        lambda x: torch.randint(-2, 3, x.shape, generator=None), [0] * 3, [2**0.5] * 3,
    ),
    "permutation": (
        lambda x: torch.randperm(x.shape[1]).expand(x.shape) / x.shape[1], [0.5] * 3, [_ROOT] * 3,
    ),
}  # fmt: skip


def test_distributions() -> None:
    """In one module, as each export takes its time; four deviations of a mean are let pass."""
    count = 4000
    x = torch.tensor([[0.0], [0.5], [1.0]]).expand(3, count)
    draws = {name: draw for name, (draw, _, _) in _DISTRIBUTIONS.items()}
    module = Lambda(lambda x: {name: draw(x).float() for name, draw in draws.items()})
    with sambarun.load(sambac.compile(module.eval(), inputs=(x,))) as executable:
        found = executable.run({"args_0": x.numpy()})
    for name, (_, means, deviations) in _DISTRIBUTIONS.items():
        mean, deviation = found[name].mean(1), found[name].std(1)
        for got, want, spread in zip(mean, means, deviations, strict=True):
            assert abs(got - want) <= 4 * spread / count**0.5 + 1e-6, name
        np.testing.assert_allclose(deviation, deviations, rtol=0.1, atol=1e-6, err_msg=name)


def test_permutations_have_each_number_once() -> None:
    module = Lambda(lambda x: (x[torch.randperm(64)], torch.randperm(64, generator=None)))
    x = torch.arange(64.0)
    with sambarun.load(sambac.compile(module.eval(), inputs=(x,))) as executable:
        rows, others = executable.run({"args_0": x.numpy()}).values()
    for found in (rows, others):
        assert sorted(found) == list(range(64))
        assert list(found) != list(range(64))
    assert others.dtype == np.int64
    assert list(rows) != list(others)


class _Own(torch.nn.Module):
    """Draws from a generator of its own."""

    def __init__(self, draw: Callable[[Tensor, torch.Generator], Tensor]) -> None:
        super().__init__()
        self.draw, self.own = draw, torch.Generator().manual_seed(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.draw(x, self.own)


@pytest.mark.parametrize(
    "draw",
    [
        lambda x, own: x + torch.randn(x.shape, generator=own),
        lambda x, own: torch.bernoulli(x, generator=own),
        lambda x, own: torch.zeros_like(x).bernoulli_(0.5, generator=own),
        lambda x, own: torch.normal(x, 0.5, generator=own),
        lambda x, own: torch.multinomial(x, 2, generator=own),
        lambda x, own: x[:, torch.randperm(3, generator=own)],
    ],
)
@pytest.mark.parametrize("train", [False, True])
def test_generators_of_modules_are_refused(
    draw: Callable[[Tensor, torch.Generator], Tensor], train: bool
) -> None:
    """Nobody could repeat their numbers; bernoulli took others without a word."""
    options = sambac.CompileOptions(train=train)
    with pytest.raises(sambac.CompileError, match="_Own draws from a generator of its own"):
        sambac.compile(_Own(draw), options, inputs=(torch.full((2, 3), 0.5),))


def test_no_gradient_passes_a_normal_draw() -> None:
    """As in PyTorch, where `mean + std * randn` has gradients and `normal(mean, std)` has not."""
    x = torch.ones(4)
    module = _Scaled(lambda w: torch.normal(w, w) + w)
    program = sambac.compile(module, sambac.CompileOptions(train=True), inputs=(x,))
    with sambarun.load(program) as executable:
        executable.step({"x": x.numpy()})
        found = executable.read("weight__grad")["weight__grad"]
    np.testing.assert_array_equal(found, np.ones(4))


def test_what_only_looks_like_a_draw_stays() -> None:
    def uniform(x: Tensor) -> Tensor:
        drawn = torch.rand_like(x)
        return (drawn + 0.25) * (drawn < 2.0)

    found = operators(training_source(Lambda(uniform), torch.ones(3, 2)).model)
    assert "Dropout" not in found
    assert "RandomUniformLike" in found


class _Scaled(torch.nn.Module):
    """The sum of what is drawn by a parameter."""

    def __init__(self, function: Draw) -> None:
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return (self.function(self.weight) * x).sum()


class _Loss(torch.nn.Module):
    """A loss of which a parameter takes no part but that it is there."""

    def __init__(self, function: Draw) -> None:
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x) * self.weight


def _loss(function: Draw, x: Tensor) -> float:
    """Return what `function` gives as the loss of one step of training."""
    module = _Loss(function)
    program = sambac.compile(module, sambac.CompileOptions(train=True), inputs=(x,))
    with sambarun.load(program) as executable:
        (loss,) = executable.step({"x": x.numpy()}).values()
    return float(loss)


# Numbers that are read several times -> what is zero, whatever they are.
_SHARED: dict[str, Draw] = {
    "both": lambda x: (x < 0.3).float() * (x > 0.7).float(),
    "neither": lambda x: 1 - (x < 0.5).float() - (x >= 0.5).float(),
    "number": lambda x: (x < 0.5).float() * (x.clamp(min=0.5) - 0.5),
    "floor": lambda x: torch.floor(x + 0.5) * (x < 0.49).float(),
    "shift": lambda x: (lambda y: torch.floor(y) * (y < 1).float())(x + 0.5),
}


def test_draws_of_the_same_numbers_agree() -> None:
    def wrong(x: Tensor) -> Tensor:
        return torch.stack([read(torch.rand_like(x)) for read in _SHARED.values()]).abs().sum()

    assert _loss(wrong, torch.ones(100)) == 0


def test_numbers_with_several_readers_stay() -> None:
    module = Lambda(lambda x: [read(torch.rand_like(x)) for read in _SHARED.values()])
    found = operators(training_source(module, torch.ones(3)).model)
    assert "Dropout" not in found
    assert found.count("RandomUniformLike") == len(_SHARED)


def test_masks_are_zeros_and_ones() -> None:
    """A mask that counts something is whole, in each type and at each rate."""
    types = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
    rates = (0.1, 0.35, 0.6, 0.99)

    def drawn(x: Tensor) -> Tensor:
        """Return the sum of the masks' shares, and 100 for each element that is neither 0 nor 1."""
        masks = [x.new_empty(x.shape, dtype=kind).bernoulli_(p) for kind in types for p in rates]
        shares = torch.stack([m.long().float().mean() for m in masks]).sum()
        wrong = torch.stack([((m != 0).long() - m.long()).abs().sum() for m in masks]).sum()
        return shares + 100 * wrong.float()

    assert abs(_loss(drawn, torch.ones(4000)) / len(types) - sum(rates)) < 0.1


# What reads only `x` and draws -> its operators of chance.
_TWICE: dict[str, tuple[Draw, str]] = {
    "dropout": (lambda x: functional.dropout(x, 0.5), "Dropout"),
    "dropout of channels": (lambda x: functional.dropout1d(x, 0.5), "Dropout"),
    "alpha dropout": (lambda x: functional.alpha_dropout(x, 0.5, training=True), "Dropout"),
    "attention": (
        lambda x: functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5), "Dropout",
    ),
    "draw": (lambda x: x * (torch.rand_like(x) < 0.5), "Dropout"),
    "bernoulli": (lambda x: x * torch.bernoulli(x * 0.5), "RandomUniformLike"),
    "uniform": (torch.rand_like, "RandomUniformLike"),
    "normal": (torch.randn_like, "RandomNormalLike"),
}  # fmt: skip


def test_two_draws_are_two() -> None:
    """What drops elements of the same tensor twice drops others: two passes over one input."""
    module = Lambda(lambda x: [draw(x) - draw(x) for draw, _ in _TWICE.values()])
    found = operators(training_source(module, torch.ones(3, 4, 5)).model)
    kinds = [operator for _, operator in _TWICE.values()]
    assert {kind: found.count(kind) for kind in kinds} == {
        kind: 2 * kinds.count(kind) for kind in kinds
    }


def test_two_dropouts_in_use_are_two() -> None:
    """One that drops whatever the mode is drops so in inference too."""
    x = np.ones((10, 100), np.float32)
    module = _Loss(lambda x: functional.dropout(x, 0.5) - functional.dropout(x, 0.5))
    with sambarun.load(sambac.compile(module.eval(), inputs=(torch.from_numpy(x),))) as executable:
        (found,) = executable.run({"x": x}).values()
    assert set(np.unique(found)) == {-2.0, 0.0, 2.0}


class _Stochastic(torch.nn.Module):
    """A residual layer that examples skip at random."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        kept = _drop_path(x) if self.training else torch.ones(())
        return (self.layer(x) * kept).square().sum()


def test_masks_follow_the_seed() -> None:
    """Equal seeds and steps have equal losses, and gradients belong to the losses."""
    x = torch.eye(4).repeat(4, 1)
    options = sambac.CompileOptions(train=True)
    program = sambac.compile(_Stochastic(), options, inputs=(x,))
    runs = []
    for seed in (1, 1, 2):
        with sambarun.load(program) as executable:
            losses = [executable.step({"x": x.numpy()}, {"seed": seed})["output"] for _ in range(3)]
            gradient = executable.read("layer.bias__grad")["layer.bias__grad"]
            weights = executable.state()
        runs.append(np.stack(losses))
        y = x.numpy() @ weights["layer.weight"].T + weights["layer.bias"]
        # The mask of the last step, from its loss: a subset of the rows that sums to it.
        kinds = np.square(y[:4]).sum(1)
        counts = np.stack(np.meshgrid(*[np.arange(5)] * 4, indexing="ij"), -1).reshape(-1, 4)
        best = counts[np.abs(counts @ kinds - losses[-1]).argmin()]
        np.testing.assert_allclose(best @ kinds, losses[-1], rtol=1e-5)
        np.testing.assert_allclose(gradient, 2 * best @ y[:4], rtol=1e-3, atol=1e-4)
    assert (runs[0] == runs[1]).all()
    assert (runs[0] != runs[2]).any()


class _Drawing(nn.Module):
    """Draws of numbers, which onnxruntime has in old opsets, beside operators of new ones."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.weight = nn.RMSNorm(4), nn.Parameter(torch.linspace(-1, 1, 16).view(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        heads = functional.linear(self.norm(x), self.weight).view(2, 3, 2, 2).transpose(1, 2)
        if self.training:
            heads = heads * torch.empty_like(heads).uniform_(1 - 1e-6, 1 + 1e-6)
        return functional.scaled_dot_product_attention(heads, heads, heads).square().mean()


def test_draws_stand_beside_operators_of_newer_opsets() -> None:
    x = torch.linspace(-2, 3, 24).view(2, 3, 4)
    exact = exactly(_Drawing()).eval()
    loss = exact(x.double())
    loss.backward()
    program = sambac.compile(_Drawing(), sambac.CompileOptions(train=True), inputs=(x,))
    with sambarun.load(program) as executable:
        (found,) = executable.run({"x": x.numpy()}).values()
        gradients = executable.read("norm.weight__grad", "weight__grad")
        (evaluated,) = executable.run({"x": x.numpy()}, sambarun.Selection("FWD")).values()
    assert_near(found, loss, 1e-5)
    assert_near(evaluated, loss)
    for name, parameter in exact.named_parameters():
        assert_near(gradients[f"{name}__grad"], parameter.grad, 1e-5, what=name)
    assert dict(program.requires.opsets)[""] == 23
