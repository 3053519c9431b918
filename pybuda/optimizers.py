"""Optimizers of a `TTDevice`: what a program asks for, and what the compiler makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import sambac
from pef.warned import warn
from pef.wording import did_you_mean

from .errors import PyBudaError
from .parameter import Parameter

_COMPILERS = {"learning_rate": "lr", "epsilon": "eps", "lars_coeff": "trust"}
"""What the compiler calls settings, where that is something else."""


class Optimizer:
    """The base of optimizers: which parameters, and the learning rate, which may change.

    They are all of the device with `device_params`, else those of `parameters`. Raises
    `PyBudaError` for both and for neither, and for numbers that make no sense.
    """

    learning_rate: float
    parameters: Sequence[Parameter] | None
    device_params: bool
    compiled_as: type[sambac.Optimizer]
    idle: ClassVar[tuple[str, ...]] = ()
    """Settings without an effect, as in the original."""
    _compiled = False

    def __setattr__(self, name: str, value: object) -> None:
        """Set what there is. Raise `PyBudaError` for another name, and for what is compiled in."""
        own = [each.name for each in fields(self)]  # type: ignore[arg-type]  # each is a dataclass
        if type(self) in _KINDS.values() and name not in (*own, *_INNER):
            raise PyBudaError(f"{type(self).__name__} has no '{name}'{did_you_mean(name, own)}")
        if self._compiled and name in own and name != "learning_rate":
            raise PyBudaError(f"{name} is compiled in; make a device with another optimizer")
        super().__setattr__(name, value)

    def __post_init__(self) -> None:
        if bool(self.device_params) is (self.parameters is not None):
            raise PyBudaError(
                f"{type(self).__name__} takes either device_params=True or a list of parameters"
            )
        self._names = None if self.parameters is None else _names(self.parameters)
        self._made()
        for name in self.idle:
            if value := getattr(self, name):
                warn(
                    f"{type(self).__name__}: {name}={value} has no effect, as it has none in the "
                    "original"
                )

    def set_optimizer_parameters(self, learning_rate: float | None = None) -> None:
        """Let the next steps have another learning rate; None leaves it as it is."""
        if learning_rate is not None:
            self._made(lr=float(learning_rate))
            self.learning_rate = float(learning_rate)

    def compiled(self, known: Mapping[str, str]) -> sambac.Optimizer | None:
        """Return the compiler's optimizer, None where it updates none of the parameters `known`.

        These are the compiler's names of parameters by the API's.
        """
        self._compiled = True
        if self._names is None:
            return self._made() if known else None
        chosen = tuple(known[name] for name in self._names if name in known)
        return replace(self._made(), params=chosen) if chosen else None

    def require_on(self, known: Sequence[str]) -> None:
        """Raise `PyBudaError` for parameters that are not among `known`, those of the device."""
        unknown = [name for name in self._names or () if name not in known]
        if unknown:
            raise PyBudaError(
                f"{type(self).__name__} is to update '{unknown[0]}', which is no parameter that "
                f"trains on the device{did_you_mean(unknown[0], known)}"
            )

    def described(self) -> dict[str, object]:
        """Return the type and the settings, but for the choice of parameters."""
        own = [each.name for each in fields(self)]  # type: ignore[arg-type]  # each is a dataclass
        chosen = ("parameters", "device_params")
        settings = {name: getattr(self, name) for name in own if name not in chosen}
        return {"type": type(self).__name__, **settings}

    def _options(self) -> dict[str, object]:
        """Return the settings, by the names of the compiler."""
        own, left_out = self.described(), ("type", *self.idle)
        return {_COMPILERS.get(n, n): value for n, value in own.items() if n not in left_out}

    def _made(self, **changed: object) -> sambac.Optimizer:
        try:
            options = {**self._options(), **changed}
            return self.compiled_as(**options)  # type: ignore[arg-type]  # of its fields
        except sambac.CompileError as error:
            raise PyBudaError(str(error)) from error


@dataclass(eq=False)
class SGD(Optimizer):
    """w -= learning_rate * g."""

    learning_rate: float
    parameters: Sequence[Parameter] | None = None
    device_params: bool = False
    compiled_as = sambac.SGD


@dataclass(eq=False)
class Adam(Optimizer):
    """Adam, with `weight_decay` in the gradient, or with `enable_adam_w` beside it."""

    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    bias_correction: bool = True
    parameters: Sequence[Parameter] | None = None
    device_params: bool = False
    enable_adam_w: bool = False

    def _options(self) -> dict[str, object]:
        found = super()._options()
        self.compiled_as = sambac.AdamW if found.pop("enable_adam_w") else sambac.Adam
        return found


@dataclass(eq=False)
class AdamW(Optimizer):
    """Adam with decoupled weight decay."""

    learning_rate: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.01
    bias_correction: bool = True
    parameters: Sequence[Parameter] | None = None
    device_params: bool = False
    compiled_as = sambac.AdamW


@dataclass(eq=False)
class LAMB(Optimizer):
    """LAMB without correction of the moving averages; the ratio of norms is within `clip_value`.

    Norms are those of whole parameters. `correction` has no effect, as in the original.
    """

    learning_rate: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.01
    correction: bool = False
    clip_value: tuple[float, float] = (0.0, 10.0)
    parameters: Sequence[Parameter] | None = None
    device_params: bool = False
    compiled_as = sambac.LAMB
    idle = ("correction",)

    def _options(self) -> dict[str, object]:
        found = super()._options()
        del found["clip_value"]
        limits = tuple(self.clip_value)
        if len(limits) != 2 or not 0 <= limits[0] < limits[1]:
            raise PyBudaError(f"clip_value is {limits}; a lower and an upper limit go there")
        low, high = limits
        trust = {"min_trust": float(low), "max_trust": float(high)}
        return {**found, "bias_correction": False, **trust}


@dataclass(eq=False)
class LARS(Optimizer):
    """LARS; norms are those of whole parameters.

    `nesterov` and `dampening` have no effect, as in the original.
    """

    learning_rate: float = 0.001
    momentum: float = 0.9
    nesterov: bool = False
    dampening: float = 0.0
    weight_decay: float = 0.01
    lars_coeff: float = 0.001
    parameters: Sequence[Parameter] | None = None
    device_params: bool = False
    epsilon: float = 1e-8
    compiled_as = sambac.LARS
    idle = ("nesterov", "dampening")


_INNER = ("_compiled", "_names", "compiled_as")
_KINDS = {kind.__name__.lower(): kind for kind in (SGD, Adam, AdamW, LAMB, LARS)}


def of_kind(type: str = "", params: Mapping[str, Any] | None = None, **others: Any) -> Optimizer:
    """Return an optimizer of all parameters, by its name. Raises `PyBudaError` for unknown ones."""
    made = _KINDS.get(type.lower())
    if made is None or others:
        odd = f"'{min(others)}' beside type and params" if made else f"no optimizer {type!r}"
        raise PyBudaError(f"there is {odd}; choose {', '.join(_KINDS)}")
    found: Optimizer = made(**(params or {}), device_params=True)
    return found


def _names(parameters: Sequence[Parameter]) -> tuple[str, ...]:
    if not isinstance(parameters, list | tuple) or not parameters:
        raise PyBudaError("parameters is no list of some; give Parameters, or device_params=True")
    wrong = [type(item).__name__ for item in parameters if not isinstance(item, Parameter)]
    if wrong:
        raise PyBudaError(f"a {wrong[0]} came among parameters; pybuda.Parameters were expected")
    names = tuple(str(item.get_name()) for item in parameters if item.requires_grad)
    if not names:
        raise PyBudaError("none of the parameters has requires_grad: there is nothing to update")
    return names
