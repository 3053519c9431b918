"""Objects that hold tensors: caches of layers, and a class of data, with a module over a cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from near import exactly
from torch import Tensor, nn

import sambac
import sambarun
from pef.graphs import data_inputs


class Layer:
    """What one layer keeps; `size` is a number of Python, `label` nothing that counts."""

    def __init__(self, keys: Tensor | None = None, size: int | None = None) -> None:
        self.keys = keys
        self.values = None if keys is None else 2 * keys
        self.label = ["layer"]
        if size is not None:
            self.size = size


class Cache:
    """What layers keep from call to call, as libraries of transformers write it."""

    def __init__(self, *layers: Layer) -> None:
        self.layers = list(layers)

    def update(self, at: int, new: Tensor) -> Tensor:
        """Add rows to a layer, which is made when it is first needed."""
        while len(self.layers) <= at:
            self.layers.append(Layer())
        layer = self.layers[at]
        layer.keys = new if layer.keys is None else torch.cat([layer.keys, new])
        layer.values = new * new if layer.values is None else torch.cat([layer.values, new * new])
        layer.label.append("more")
        return layer.keys.sum(0) + layer.values.sum(0)


class Decoder(nn.Module):
    """Two layers over a cache that it is given, or makes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 4))

    def forward(self, x: Tensor, cache: Cache | None = None) -> dict[str, object]:
        """Return a result and the cache."""
        cache = Cache() if cache is None else cache
        for at in range(2):
            x = x * self.weight + torch.tanh(cache.update(at, x))
        return {"y": x, "cache": cache}


@dataclass
class Pair:
    """A class of data that no library has made known to PyTorch."""

    first: Tensor
    second: object = None
    flags: dict[str, bool] = field(default_factory=dict)


X = torch.linspace(-1, 1, 8).reshape(2, 4)


def cache_of_two(size: int | None = None) -> Cache:
    return Cache(Layer(X + 1, size), Layer(X - 1, size))


def exact_cache(cache: Cache) -> Cache:
    """Return a copy with float64."""
    copies = [Layer() for _ in cache.layers]
    for one, layer in zip(copies, cache.layers, strict=True):
        one.keys, one.values = exactly(layer.keys), exactly(layer.values)
    return Cache(*copies)


def tensors_of(cache: Cache) -> list[Tensor]:
    return [one for layer in cache.layers for one in (layer.keys, layer.values) if one is not None]


def run_program(program: sambac.Program, *inputs: Tensor) -> dict[str, np.ndarray]:
    names = [port.name for port in data_inputs(program.graphs[0])]
    with sambarun.load(program) as executable:
        return executable.run(dict(zip(names, (one.numpy() for one in inputs), strict=True)))


class Two(nn.Module):
    """A function of two inputs."""

    def __init__(self, function: Callable[[Tensor, object], object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, one: object) -> object:
        """Return what the function returns."""
        return self.function(x, one)
