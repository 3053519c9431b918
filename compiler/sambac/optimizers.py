"""What a user can ask of an optimizer: plain data, PyTorch's names and defaults.

The formulas stand in `sambac.training.updates`. The numbers here become argins of the compiled
program, so they can be changed at run time; what chooses a formula (`nesterov`, `amsgrad`) cannot.
A `dampening`, `lr_decay`, `min_trust` or `max_trust` of zero chooses the formula without it: to set
it at run time, compile with a number above zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, dataclass, fields
from typing import ClassVar

from pef.arguments import FLAG, NAME, NAMES, NUMBER, shown
from pef.hyperparameters import OF_OPTIMIZERS
from pef.text import number_of
from pef.wording import did_you_mean, listed

from .errors import CompileError

_BY_DEFAULT = {float: NUMBER, bool: FLAG, str: NAME}
"""What an option may be, by the type of its default; a truthy text is no flag."""


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """An optimizer over the parameters whose names match one of `params` (shell patterns).

    `kind` is how the command line and argins call it; `name` is the prefix of its argins and of
    its step counter, by default `kind` (`adamw.0`, `adamw.1` where several optimizers share one).
    Several optimizers of one program must match disjoint parameters; of several that match one,
    that with the narrowest pattern wins: a plain name before a pattern before `*`. A parameter
    group is one more optimizer. A pattern that matches no parameter with a gradient is an error
    unless `lenient`. Raises `CompileError` for options of other kinds and
    for numbers that make no sense.
    """

    kind: ClassVar[str]
    params: tuple[str, ...] = ("*",)
    name: str = ""
    lenient: bool = False

    def __post_init__(self) -> None:
        if type(self) is Optimizer:
            raise CompileError(
                "Optimizer is the base class of optimizers; give one of them, such as SGD()"
            )
        problems = _outside(self) or self._contradictions()
        patterns: object = self.params
        if not isinstance(patterns, tuple) or not patterns or not NAMES.fits(patterns):
            problems.append(f"params is {shown(patterns)}; give a tuple of patterns")
        if problems:
            raise CompileError(f"{self.kind}: {listed(problems)}")

    def _contradictions(self) -> list[str]:
        """Return what is wrong with the options taken together, a phrase each."""
        return []


@dataclass(frozen=True, kw_only=True)
class SGD(Optimizer):
    """Stochastic gradient descent, as torch.optim.SGD."""

    kind: ClassVar[str] = "sgd"
    lr: float = 1e-3
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    def _contradictions(self) -> list[str]:
        if self.nesterov and (not self.momentum or self.dampening):
            return ["nesterov needs a momentum above 0 and no dampening"]
        return []


@dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    """Adam with L2 regularisation in the gradient, as torch.optim.Adam.

    Without `bias_correction` the moving averages are taken as they are, small in the first steps.
    """

    kind: ClassVar[str] = "adam"
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False
    bias_correction: bool = True


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """Adam with decoupled weight decay, as torch.optim.AdamW."""

    kind: ClassVar[str] = "adamw"
    weight_decay: float = 1e-2


@dataclass(frozen=True, kw_only=True)
class RMSprop(Optimizer):
    """RMSprop, as torch.optim.RMSprop."""

    kind: ClassVar[str] = "rmsprop"
    lr: float = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False


@dataclass(frozen=True, kw_only=True)
class Adagrad(Optimizer):
    """Adagrad, as torch.optim.Adagrad."""

    kind: ClassVar[str] = "adagrad"
    lr: float = 1e-2
    lr_decay: float = 0.0
    weight_decay: float = 0.0
    initial_accumulator_value: float = 0.0
    eps: float = 1e-10


@dataclass(frozen=True, kw_only=True)
class LAMB(Optimizer):
    """LAMB (You et al., 2020): AdamW whose step is scaled by |w| / |update| for each parameter.

    The ratio is at least `min_trust` and at most `max_trust`, which is no limit where it is 0.
    """

    kind: ClassVar[str] = "lamb"
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    weight_decay: float = 0.0
    bias_correction: bool = True
    min_trust: float = 0.0
    max_trust: float = 0.0

    def _contradictions(self) -> list[str]:
        if 0 < self.max_trust < self.min_trust:
            return [f"min_trust is {self.min_trust:g}, above a max_trust of {self.max_trust:g}"]
        return []


@dataclass(frozen=True, kw_only=True)
class LARS(Optimizer):
    """LARS (You et al., 2017): momentum SGD, the rate of each parameter scaled by |w| / |g|."""

    kind: ClassVar[str] = "lars"
    lr: float = 1e-1
    momentum: float = 0.9
    weight_decay: float = 0.0
    trust: float = 1e-3
    eps: float = 1e-8


OPTIMIZERS: dict[str, type[Optimizer]] = {
    cls.kind: cls for cls in (SGD, Adam, AdamW, RMSprop, Adagrad, LAMB, LARS)
}


def parse_optimizer(text: str) -> Optimizer:
    """Return the optimizer in `text`, as the command line has it.

    `KIND` or `KIND:OPTION=VALUE,...`, for example
    `adamw:lr=1e-3,weight_decay=0.01,params=encoder.*|head.*,name=encoder`: options are the fields
    of the class, several patterns are separated by `|`. Raises `CompileError` with everything
    that is wrong.
    """
    kind, _, words = text.partition(":")
    cls = OPTIMIZERS.get(kind.strip())
    if cls is None:
        raise CompileError(
            f"There is no optimizer '{kind.strip()}'{did_you_mean(kind, OPTIMIZERS)}; "
            f"choose one of {', '.join(OPTIMIZERS)}."
        )
    known = {field.name: field for field in fields(cls)}
    values: dict[str, object] = {}
    problems = []
    for word in filter(None, (word.strip() for word in words.split(","))):
        try:
            name, value = _option(word, known)
        except ValueError as error:
            problems.append(str(error))
            continue
        if name in values:
            problems.append(f"{name} is given twice")
        values[name] = value
    if problems:
        raise CompileError(f"{cls.kind}: {listed(problems)}")
    make: Callable[..., Optimizer] = cls
    return make(**values)


def _option(word: str, known: dict[str, Field[object]]) -> tuple[str, object]:
    """Return the name and the value in `name=value`; raise `ValueError` with what is wrong."""
    name, equals, value = (part.strip() for part in word.partition("="))
    field = known.get(name)
    if field is None:
        hint = did_you_mean(name, known) or f"; its options are {', '.join(known)}"
        raise ValueError(f"unknown option '{name}'{hint}")
    if not value and isinstance(field.default, bool) and not equals:
        return name, True
    if not value:
        raise ValueError(f"{name} has no value; write {name}={_example(field.default)}")
    return name, _value(name, value, field.default)


def _value(name: str, text: str, default: object) -> object:
    """Return `text` read as the type of `default`; raise `ValueError` where it is of another."""
    if isinstance(default, bool):
        words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if text.lower() not in words:
            raise ValueError(f"{name} is '{text}'; write true or false")
        return words[text.lower()]
    if isinstance(default, float):
        if (number := number_of(text)) is None:
            raise ValueError(f"{name} is '{text}'; write a number, as {default:g}")
        return number
    if isinstance(default, tuple):
        return tuple(part.strip() for part in text.split("|") if part.strip())
    return text


def _example(default: object) -> str:
    if isinstance(default, tuple):
        return "PATTERN|PATTERN"
    return f"{default:g}" if isinstance(default, float) else "NAME"


def _outside(optimizer: Optimizer) -> list[str]:
    """Return the options of `optimizer` that are not of their kinds, a phrase each."""
    problems = []
    for field in fields(optimizer):
        value = getattr(optimizer, field.name)
        kind = _BY_DEFAULT.get(type(field.default))
        if kind is not None and not kind.fits(value):
            problems.append(f"{field.name} is {shown(value)}; give {kind.words}")
            continue
        allowed = OF_OPTIMIZERS.get(field.name)
        if allowed is not None and not allowed.fits(value):
            problems.append(f"{field.name} is {value:g}; give {allowed.words}")
    return problems
