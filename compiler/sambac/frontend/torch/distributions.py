"""Draws that ONNX has no operator for, by those that it has.

uniform(x, a, b)   ->  rand_like(x) * (b - a) + a
bernoulli(x, p)    ->  rand_like(x) < p            p a tensor; numbers in float32, as a float16
                                                   below 1 may round to 1
normal(mean, std)  ->  randn(...) * std + mean     without gradients, as in PyTorch
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.export import ExportedProgram

_aten = torch.ops.aten
Table = Mapping[Callable[..., object], Callable[..., Tensor]]


def _uniform(x: Tensor, low: float = 0.0, high: float = 1.0, *, generator: None = None) -> Tensor:
    numbers = torch.rand_like(x)
    return numbers if (low, high) == (0, 1) else numbers * (high - low) + low


def _bernoulli(p: Tensor, *, generator: None = None) -> Tensor:
    return _bernoulli_by_tensor(p, p)


def _bernoulli_by_tensor(x: Tensor, p: Tensor, *, generator: None = None) -> Tensor:
    return (torch.rand_like(x, dtype=torch.float32) < p).to(x.dtype)


def _normal(mean: Tensor | float, std: Tensor | float = 1.0, *, generator: None = None) -> Tensor:
    fixed = [x.detach() if isinstance(x, Tensor) else x for x in (mean, std)]
    given = [x for x in fixed if isinstance(x, Tensor)]
    like = given[0].expand_as(sum(given[1:], given[0]))
    return torch.randn_like(like) * fixed[1] + fixed[0]


UNIFORM: Table = {_aten.uniform.default: _uniform}
"""What uniform numbers become, before it is looked for what is made of them."""

_OTHERS: Table = {
    _aten.bernoulli.Tensor: _bernoulli_by_tensor,
    _aten.bernoulli.default: _bernoulli,
    _aten.normal.Tensor_Tensor: _normal,
    _aten.normal.Tensor_float: _normal,
    _aten.normal.float_Tensor: _normal,
}


def spell_draws(program: ExportedProgram) -> ExportedProgram:
    """Return `program`, which is functional, without draws that have no operator of their own."""
    if not any(node.target in _OTHERS for node in program.graph.nodes):
        return program
    spelled: ExportedProgram = program.run_decompositions(dict(_OTHERS))
    return spelled
