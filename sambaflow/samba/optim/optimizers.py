"""The optimizers of torch, with samba's options and defaults."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import torch
from torch import Tensor

from .base import SambaOptimizer, checked_options

Params: TypeAlias = Iterable[Tensor] | Iterable[dict[str, object]] | Iterable[tuple[str, Tensor]]
"""Parameters, groups of them with options of their own, or parameters with names."""


class SGD(SambaOptimizer, torch.optim.SGD):
    """Stochastic gradient descent, with momentum and weight decay.

    Further options are those of `SambaOptimizer`.
    """

    @checked_options
    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        max_grad_norm: float | None = None,
        argin_region_name: str = "",
        *,
        fp32_params: bool = False,
    ) -> None:
        torch.optim.SGD.__init__(self, params, lr, momentum, dampening, weight_decay, nesterov)
        self.configure(max_grad_norm, argin_region_name, fp32_params)


class AdamW(SambaOptimizer, torch.optim.AdamW):
    """Adam with decoupled weight decay; note the second beta, 0.997, where torch has 0.999.

    Further options are those of `SambaOptimizer`.
    """

    @checked_options
    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.997),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        max_grad_norm: float | None = None,
        fp32_params: bool = False,
        argin_region_name: str = "",
    ) -> None:
        torch.optim.AdamW.__init__(self, params, lr, betas, eps, weight_decay, amsgrad)
        self.configure(max_grad_norm, argin_region_name, fp32_params)


class SparseAdamW(AdamW):
    """AdamW for parameters with sparse gradients, such as those of embeddings with `sparse=True`.

    A row without a gradient has the gradient 0: its averages decay and it goes on moving, just as
    with dense gradients, which is what the device computes.
    """

    def _update(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and parameter.grad.is_sparse:
                    parameter.grad = parameter.grad.to_dense()
        super()._update()


class Adam(SambaOptimizer, torch.optim.Adam):
    """Adam with weight decay added to the gradient. Further options: see `SambaOptimizer`."""

    @checked_options
    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        max_grad_norm: float | None = None,
        fp32_params: bool = False,
        argin_region_name: str = "",
    ) -> None:
        torch.optim.Adam.__init__(self, params, lr, betas, eps, weight_decay, amsgrad)
        self.configure(max_grad_norm, argin_region_name, fp32_params)


class RMSprop(SambaOptimizer, torch.optim.RMSprop):
    """RMSprop, plain or centred. Further options are those of `SambaOptimizer`."""

    @checked_options
    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        max_grad_norm: float | None = None,
        argin_region_name: str = "",
        *,
        fp32_params: bool = False,
    ) -> None:
        torch.optim.RMSprop.__init__(self, params, lr, alpha, eps, weight_decay, momentum, centered)
        self.configure(max_grad_norm, argin_region_name, fp32_params)


class Adagrad(SambaOptimizer, torch.optim.Adagrad):
    """Adagrad. Further options are those of `SambaOptimizer`."""

    @checked_options
    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        max_grad_norm: float | None = None,
        argin_region_name: str = "",
        *,
        fp32_params: bool = False,
    ) -> None:
        torch.optim.Adagrad.__init__(
            self, params, lr, lr_decay, weight_decay, initial_accumulator_value, eps
        )
        self.configure(max_grad_norm, argin_region_name, fp32_params)
