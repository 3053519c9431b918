"""Recurrent layers run one step, not all, where only the shapes of what they give are asked for.

They are recorded as one operator each. What that gives PyTorch finds out by running the layer step
by step on fake tensors, every time that it looks: a module with some hundred steps took minutes to
compile. All steps give states of one shape, so that one stands for all of them. Where somebody
records the steps themselves they are run as PyTorch does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import torch
from torch._C import DispatchKey
from torch._decomp import decomposition_table
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import is_fake
from torch.fx.experimental.proxy_tensor import get_proxy_mode

_LAYERS: tuple[OpOverload, ...] = tuple(
    getattr(torch.ops.aten, name).input for name in ("gru", "lstm", "rnn_relu", "rnn_tanh")
)
_SEQUENCES = 3  # axes of what has a batch

_Layer = Callable[..., tuple[torch.Tensor, ...]]
"""From what a layer reads and its settings to all its states, and the last of each kind."""


@contextmanager
def one_step_for_all() -> Iterator[None]:
    """Let one step of recurrent layers say for a while what shapes all have."""
    before = [(dict(layer.py_kernels), decomposition_table[layer]) for layer in _LAYERS]
    try:
        for layer, (kernels, rule) in zip(_LAYERS, before, strict=True):
            shapes = {key: _of_one_step(kernel) for key, kernel in kernels.items()}
            _put(layer, shapes, _of_one_step(rule))
        yield
    finally:
        for layer, (kernels, rule) in zip(_LAYERS, before, strict=True):
            _put(layer, kernels, rule)


@cache
def _of_one_step(steps: _Layer) -> _Layer:
    """Return what runs one step of fake sequences, and all `steps` of others."""

    def layer(
        x: torch.Tensor,
        hx: torch.Tensor | Sequence[torch.Tensor],
        params: Sequence[torch.Tensor],
        *settings: object,
    ) -> tuple[torch.Tensor, ...]:
        *others, batch_first = settings
        recorded = get_proxy_mode() is not None
        if recorded or x.ndim != _SEQUENCES or not is_fake(x) or x.shape[bool(batch_first)] == 0:
            return steps(x, hx, params, *settings)
        by_step = x.transpose(0, 1) if batch_first else x
        states, *last = steps(by_step[:1], hx, params, *others, False)
        states = states.expand(by_step.shape[0], -1, -1).contiguous()
        return (states.transpose(0, 1) if batch_first else states, *last)

    return layer


def _put(layer: OpOverload, kernels: dict[DispatchKey, _Layer], rule: _Layer) -> None:
    """Let `layer` have these kernels, and the rule that fake tensors ask for first."""
    decomposition_table[layer] = rule
    layer.py_kernels.clear()
    layer.py_kernels.update(kernels)
    layer._dispatch_cache.clear()
