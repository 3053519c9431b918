"""Random functions of torch, done with random numbers of our own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch

from .rng import MultithreadedRNG

TRUNCATED = "_no_grad_trunc_normal_"

NAMES = frozenset(
    {
        *("uniform_", "normal_", "rand", "randn", "rand_like", "randn_like", TRUNCATED),
        *("bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "random_"),
        *("randint", "randperm", "normal", "bernoulli", "multinomial", "orthogonal_", "sparse_"),
    }
)
"""The names of torch's functions that draw random numbers, and take a generator."""


def drawn(
    function: Callable[..., object],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    rng: MultithreadedRNG,
) -> object:
    """Return the result of a function of `NAMES` whose random numbers come from `rng`.

    Of the usual ones threads make the values; others run in torch, with a generator seeded by
    `rng`.
    """
    given = {key: value for key, value in kwargs.items() if key != "generator"}
    name = function.__name__
    if name in _FILLS:
        target = args[0] if args else given.pop("tensor")
        assert isinstance(target, torch.Tensor)
        return _FILLS[name](rng, target, *args[1:], **given)
    if name in _FACTORIES:
        like = function(*args, **{**given, "device": "meta"})
        assert isinstance(like, torch.Tensor)
        return _FACTORIES[name](rng, like)
    generator = rng.torch_generator()
    # sparse_ of torch.nn.init draws from torch's own generator too.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator.initial_seed())
        return function(*args, **given, generator=generator)


def _uniform(rng: MultithreadedRNG, target: torch.Tensor, *args: float, **kwargs: float) -> object:
    # One of torch's keywords is a word of Python.
    low, high = (*args, *(0.0, 1.0)[len(args) :])
    values = rng.uniform(
        kwargs.get("from", low), kwargs.get("to", high), target.shape, target.dtype
    )
    return target.copy_(values)


def _normal(
    rng: MultithreadedRNG, target: torch.Tensor, mean: float = 0.0, std: float = 1.0
) -> object:
    return target.copy_(rng.normal(mean, std, target.shape, target.dtype))


def _truncated_normal(rng: MultithreadedRNG, target: torch.Tensor, **given: float) -> object:
    """Fill `target` from the normal distribution cut off at `a` and `b`, by its inverse.

    `mean`, `std`, `a` and `b` are given.
    """
    mean, std, edges = given["mean"], given["std"], (given["a"], given["b"])
    low, high = (0.5 * math.erfc((mean - edge) / (std * math.sqrt(2.0))) for edge in edges)
    shares = rng.uniform(low, high, target.shape, torch.float64)
    values = torch.special.ndtri(shares).mul_(std).add_(mean).clamp_(*edges)
    return target.copy_(values)


_FILLS: dict[str, Callable[..., object]] = {
    "uniform_": _uniform,
    "normal_": _normal,
    TRUNCATED: _truncated_normal,
}

_FACTORIES: dict[str, Callable[[MultithreadedRNG, torch.Tensor], torch.Tensor]] = {
    "rand": lambda rng, like: rng.uniform(0.0, 1.0, like.shape, like.dtype),
    "rand_like": lambda rng, like: rng.uniform(0.0, 1.0, like.shape, like.dtype),
    "randn": lambda rng, like: rng.normal(0.0, 1.0, like.shape, like.dtype),
    "randn_like": lambda rng, like: rng.normal(0.0, 1.0, like.shape, like.dtype),
}
