"""What samba's optimizers have and torch's do not."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pef.arguments import shown
from pef.hyperparameters import OF_OPTIMIZERS
from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.arguments.kinds import RATE, ArgumentKind
from sambaflow.samba.tensors.current import current

if TYPE_CHECKING:
    _Base = torch.optim.Optimizer
else:
    _Base = object

HALF = (torch.float16, torch.bfloat16)

_RATES = "lr momentum dampening weight_decay eps alpha lr_decay initial_accumulator_value trust"
_PAIR = ArgumentKind(
    "a pair of numbers",
    lambda v: isinstance(v, (tuple, list)) and len(v) == 2 and all(map(RATE.fits, v)),
)

checked_options = checked(params=None, betas=_PAIR, **dict.fromkeys(_RATES.split(), RATE))
"""Checks the options of an optimizer when it is made; parameters are torch's to check."""


class SambaOptimizer(_Base):
    """An optimizer of samba; a class beside it says how a step changes parameters.

    `max_grad_norm`: gradients are scaled down to this norm over all parameters before a step.
    `argin_region_name`: the prefix of its hyperparameters, `<prefix>.lr`; without one they are
    called after the kind of the optimizer. `fp32_params`: a step on the host updates float32 copies
    of parameters in half precision and rounds these.
    """

    max_grad_norm: float | None = None
    argin_region_name: str = ""
    fp32_params: bool = False
    _copies: dict[Tensor, Tensor]
    _opt_called = True  # for schedules of torch, which do not see the steps of the device

    @checked()
    def configure(
        self, max_grad_norm: float | None, argin_region_name: str, fp32_params: bool = False
    ) -> None:
        """Set the options that torch's optimizers do not have.

        Raises ValueError for a norm that is not above 0, and, as torch, for numbers of a parameter
        group that make no sense.
        """
        if max_grad_norm is not None and not max_grad_norm > 0:
            raise ValueError(f"max_grad_norm is {max_grad_norm}, expected a number above 0 or None")
        self.max_grad_norm = max_grad_norm
        self.argin_region_name = argin_region_name
        self.fp32_params = fp32_params
        self._copies = {}
        for group in self.param_groups:
            _require_sense(group)

    @checked()
    def step(self, closure: Callable[[], object] | None = None) -> object:  # type: ignore[override]
        """Take one step on the host, from the gradients there; return what `closure` returns."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass(), self._wide():
            if self.max_grad_norm is not None:
                parameters = [p for group in self.param_groups for p in group["params"]]
                torch.nn.utils.clip_grad_norm_(parameters, self.max_grad_norm)
            self._update()
        return loss

    def _update(self) -> None:
        """Change the parameters. Torch's own method, without the hooks that `step` has run."""
        inspect.unwrap(super().step)(self)

    def cpu(self) -> None:
        """Copy the state of the optimizer from the device."""
        current().fetch_states(self)

    @contextmanager
    def _wide(self) -> Iterator[None]:
        """Let parameters in half precision, and their gradients, be float32 for a while."""
        narrow: list[tuple[Tensor, Tensor, Tensor]] = []
        for group in self.param_groups if self.fp32_params else ():
            for parameter in group["params"]:
                if parameter.grad is None or parameter.dtype not in HALF:
                    continue
                narrow.append((parameter, parameter.data, parameter.grad))
                wide = self._copies.get(parameter)
                if wide is None or not torch.equal(wide.to(parameter.dtype), parameter.data):
                    wide = self._copies[parameter] = parameter.data.float()
                gradient = parameter.grad.float()
                parameter.grad = None
                parameter.data = wide
                parameter.grad = gradient
        try:
            yield
        finally:
            for parameter, value, gradient in narrow:
                parameter.grad = None
                value.copy_(parameter.data)
                parameter.data = value
                parameter.grad = gradient

    def __getstate__(self) -> dict[str, object]:
        """Return what copies and pickles keep."""
        own = ("max_grad_norm", "argin_region_name", "fp32_params")
        kept: Mapping[str, object] = super().__getstate__()
        return {**kept, **{name: getattr(self, name) for name in own}, "_copies": {}}


def _require_sense(group: Mapping[str, object]) -> None:
    """Raise ValueError for an option of a parameter group that is no number in its range."""
    options = {name: group[name] for name in OF_OPTIMIZERS if name in group}
    betas = group.get("betas", ())
    assert isinstance(betas, (tuple, list))
    options |= {f"beta{place}": beta for place, beta in enumerate(betas, 1)}
    for name, value in options.items():
        allowed = OF_OPTIMIZERS[name]
        if not (RATE.fits(value) and allowed.fits(value)):
            raise ValueError(f"{name} is {shown(value)}, expected {allowed.words}")
