"""The optimizers of torch, with samba's options and defaults, and two that torch does not have.

Those scale the step of each parameter by its norm; the formulas are the compiler's.
"""

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


class LAMB(SambaOptimizer, torch.optim.Optimizer):
    """LAMB (You et al., 2020): AdamW whose step is scaled by |w| / |step| for each parameter.

    Further options are those of `SambaOptimizer`.
    """

    @checked_options
    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0,
        max_grad_norm: float | None = None,
        fp32_params: bool = False,
        argin_region_name: str = "",
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        torch.optim.Optimizer.__init__(self, params, defaults)
        self.configure(max_grad_norm, argin_region_name, fp32_params)

    def _update(self) -> None:
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for weight in (item for item in group["params"] if item.grad is not None):
                state = self.state[weight]
                if not state:
                    state["step"] = torch.tensor(0.0)
                    state["exp_avg"] = torch.zeros_like(weight)
                    state["exp_avg_sq"] = torch.zeros_like(weight)
                state["step"] += 1
                step = state["step"].item()
                first = state["exp_avg"].lerp_(weight.grad, 1 - beta1) / (1 - beta1**step)
                second = state["exp_avg_sq"].lerp_(weight.grad.square(), 1 - beta2)
                root = (second / (1 - beta2**step)).sqrt_()
                move = first / (root + group["eps"]) + group["weight_decay"] * weight
                trust = _ratio(weight.norm(), move.norm())
                weight -= group["lr"] * trust * move


class LARS(SambaOptimizer, torch.optim.Optimizer):
    """LARS (You et al., 2017): momentum SGD, the rate of each parameter scaled by |w| / |g|.

    Further options are those of `SambaOptimizer`.
    """

    @checked_options
    def __init__(
        self,
        params: Params,
        lr: float = 1e-1,
        momentum: float = 0.9,
        weight_decay: float = 0,
        trust: float = 1e-3,
        eps: float = 1e-8,
        max_grad_norm: float | None = None,
        argin_region_name: str = "",
        *,
        fp32_params: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust": trust,
            "eps": eps,
        }
        torch.optim.Optimizer.__init__(self, params, defaults)
        self.configure(max_grad_norm, argin_region_name, fp32_params)

    def _update(self) -> None:
        for group in self.param_groups:
            decay = group["weight_decay"]
            for weight in (item for item in group["params"] if item.grad is not None):
                size, gradient = weight.norm(), weight.grad.norm()
                below = gradient + decay * size + group["eps"]
                both = size > 0 and gradient > 0
                rate = group["trust"] * size / below if both else torch.tensor(1.0)
                move = group["lr"] * rate * (weight.grad + decay * weight)
                if group["momentum"]:
                    state = self.state[weight]
                    if not state:
                        state["momentum_buffer"] = torch.zeros_like(weight)
                    move = state["momentum_buffer"].mul_(group["momentum"]).add_(move)
                weight -= move


def _ratio(above: Tensor, below: Tensor) -> Tensor:
    """Return above / below, and 1 where one of them is 0."""
    return above / below if above > 0 and below > 0 else torch.ones_like(above)
