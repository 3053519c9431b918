"""Optimizers of a `TTDevice`: what a program asks for, and what the compiler makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import sambac
from pef.warned import warn
from pef.wording import did_you_mean

from .errors import PyBudaError
from .parameter import Parameter


class Optimizer:
    """The base of optimizers: which parameters, and the learning rate, which may change.

    They are all of the device with `device_params`, else those of `parameters`. Raises
    `PyBudaError` for both and for neither, and for numbers that make no sense.
    """

    def __init__(
        self,
        kind: Callable[..., sambac.Optimizer],
        parameters: Sequence[Parameter] | None,
        device_params: bool,
        **options: object,
    ) -> None:
        if device_params is (parameters is not None):
            raise PyBudaError(
                f"{type(self).__name__} takes either device_params=True or a list of parameters"
            )
        self._names = None if parameters is None else _names(parameters)
        self._kind = kind
        self._settings = _made(kind, **options)
        self.device_params = device_params

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        return self._settings.lr  # type: ignore[attr-defined,no-any-return]  # of every kind

    def set_optimizer_parameters(self, learning_rate: float | None = None) -> None:
        """Let the next steps have another learning rate; None leaves it as it is."""
        if learning_rate is not None:
            rate = _made(self._kind, lr=float(learning_rate)).lr  # type: ignore[attr-defined]
            self._settings = replace(self._settings, lr=rate)  # type: ignore[call-arg]

    def compiled(self, known: Mapping[str, str]) -> sambac.Optimizer:
        """Return the compiler's optimizer; `known` has its names of parameters by the API's.

        Raises `PyBudaError` for parameters that are not on the device.
        """
        if self._names is None:
            return self._settings
        unknown = [name for name in self._names if name not in known]
        if unknown:
            raise PyBudaError(
                f"{type(self).__name__} is to update '{unknown[0]}', which is no parameter that "
                f"trains on the device{did_you_mean(unknown[0], known)}"
            )
        return replace(self._settings, params=tuple(known[name] for name in self._names))


class SGD(Optimizer):
    """w -= learning_rate * g."""

    def __init__(
        self,
        learning_rate: float,
        parameters: Sequence[Parameter] | None = None,
        device_params: bool = False,
    ) -> None:
        super().__init__(sambac.SGD, parameters, device_params, lr=learning_rate)


class Adam(Optimizer):
    """Adam, with `weight_decay` in the gradient, or with `enable_adam_w` beside it."""

    def __init__(
        self,
        learning_rate: float,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        bias_correction: bool = True,
        parameters: Sequence[Parameter] | None = None,
        device_params: bool = False,
        enable_adam_w: bool = False,
    ) -> None:
        super().__init__(
            sambac.AdamW if enable_adam_w else sambac.Adam,
            parameters,
            device_params,
            lr=learning_rate,
            beta1=beta1,
            beta2=beta2,
            eps=epsilon,
            weight_decay=weight_decay,
            bias_correction=bias_correction,
        )


class AdamW(Adam):
    """Adam with decoupled weight decay."""

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        bias_correction: bool = True,
        parameters: Sequence[Parameter] | None = None,
        device_params: bool = False,
    ) -> None:
        super().__init__(
            learning_rate,
            beta1,
            beta2,
            eps,
            weight_decay,
            bias_correction,
            parameters,
            device_params,
            enable_adam_w=True,
        )


class LAMB(Optimizer):
    """LAMB without correction of the moving averages; the ratio of norms is within `clip_value`.

    Norms are those of whole parameters. `correction` has no effect, as in the original.
    """

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        correction: bool = False,
        clip_value: tuple[float, float] = (0.0, 10.0),
        parameters: Sequence[Parameter] | None = None,
        device_params: bool = False,
    ) -> None:
        _warn_of_idle("LAMB", correction=correction)
        low, high = clip_value
        if not 0 <= low < high:
            raise PyBudaError(f"clip_value is {clip_value}; a lower and an upper limit go there")
        super().__init__(
            sambac.LAMB,
            parameters,
            device_params,
            lr=learning_rate,
            beta1=beta1,
            beta2=beta2,
            eps=eps,
            weight_decay=weight_decay,
            bias_correction=False,
            min_trust=float(low),
            max_trust=float(high),
        )


class LARS(Optimizer):
    """LARS; norms are those of whole parameters.

    `nesterov` and `dampening` have no effect, as in the original.
    """

    def __init__(
        self,
        learning_rate: float = 0.001,
        momentum: float = 0.9,
        nesterov: bool = False,
        dampening: float = 0.0,
        weight_decay: float = 0.01,
        lars_coeff: float = 0.001,
        parameters: Sequence[Parameter] | None = None,
        device_params: bool = False,
        epsilon: float = 1e-8,
    ) -> None:
        _warn_of_idle("LARS", nesterov=nesterov, dampening=dampening)
        super().__init__(
            sambac.LARS,
            parameters,
            device_params,
            lr=learning_rate,
            momentum=momentum,
            weight_decay=weight_decay,
            trust=lars_coeff,
            eps=epsilon,
        )


def _made(kind: Callable[..., sambac.Optimizer], **options: object) -> sambac.Optimizer:
    try:
        return kind(**options)
    except sambac.CompileError as error:
        raise PyBudaError(str(error)) from error


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


def _warn_of_idle(optimizer: str, **options: object) -> None:
    for name, value in options.items():
        if value:
            warn(f"{optimizer}: {name}={value} has no effect, as it has none in the original")
