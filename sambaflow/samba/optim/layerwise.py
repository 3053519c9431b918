"""Optimizers that scale the step of each parameter by its norm; the formulas are the compiler's."""

from __future__ import annotations

import torch
from torch import Tensor

from .base import SambaOptimizer, checked_options
from .optimizers import Params


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
