"""Layers that multiply with a few of their weights, where only differences between calls are asked.

    y[j] = b[j] + sum of x[i] w[j, i] over all i
      ->   b[j] + sqrt(min(I, O)) * sum of x[i] w[j, i] over i = j % I, j + O, j + 2 O, ... < I

with `w` [O, I]: each element of the input is in the result, and as many weights are read as there
are elements in the longer of the two. A difference that reaches a layer goes on through it. Large
models spend most of their time in such layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter, functional
from torch.overrides import TorchFunctionMode

_FEWEST = 1 << 16
"""Weights from which on a layer is worth it."""


class Thinned(TorchFunctionMode):
    """Lets products with large parameters, as layers have them, read few of their numbers."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        """Call `func`, or what is in its place."""
        given = dict(kwargs or {})
        if func is functional.linear:
            return _linear(*args, **given)
        if func is torch.addmm and not given:
            return _added(*args)
        return func(*args, **given)


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if _is_large(input, weight):
        return _thin(input, weight, bias)
    return functional.linear(input, weight, bias)


def _added(bias: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    if _is_large(x, weight):
        return _thin(x, weight.t(), bias)
    return torch.addmm(bias, x, weight)


def _is_large(x: Tensor, weight: Tensor) -> bool:
    is_layer = type(weight) is Parameter and weight.ndim == 2 and weight.numel() >= _FEWEST
    return is_layer and x.is_floating_point()


def _thin(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return what stands in for x [..., I] times weight [O, I] transposed, plus bias [O]."""
    outs, ins = weight.shape
    at = torch.arange(max(outs, ins))
    chosen = weight[at % outs, at % ins] * min(outs, ins) ** 0.5
    result: Tensor
    if outs >= ins:
        shape = [*x.shape[:-1], -(-outs // ins), ins]
        result = x.unsqueeze(-2).expand(shape).flatten(-2)[..., :outs] * chosen
    else:
        padded = functional.pad(x * chosen, (0, -ins % outs))
        result = padded.reshape(*x.shape[:-1], -1, outs).sum(-2)
    return result if bias is None else result + bias
