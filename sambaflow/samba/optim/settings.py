"""Kinds of optimizers, torch's and samba's: their options, state, and names in a program."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import SupportsFloat, TypeAlias, cast

import torch
from torch import Tensor
from torch.optim import Optimizer

from sambaflow.samba.arguments.kinds import RATE
from sambaflow.samba.errors import SambaError

from .base import SambaOptimizer
from .optimizers import LAMB, LARS

Group: TypeAlias = Mapping[str, object]
"""A parameter group of torch: its parameters, and options by name."""


@dataclass(frozen=True)
class OptimizerKind:
    """A kind of optimizer: the compiler's word, the class here, options as both call them.

    `options` may name two of the compiler's for one here (`betas`). `slots` gives, for the options
    of a group, the tensors of state beside each parameter and their first values. Those of all
    parameters `begin` with the optimizer, or else each with the first gradient.
    """

    name: str
    type: type[Optimizer]
    options: tuple[str, ...]
    slots: Callable[[Group], Mapping[str, float]]
    counts_steps: bool = True
    begin: bool = False


def _momentum(group: Group) -> Mapping[str, float]:
    return {"momentum_buffer": 0.0} if group["momentum"] else {}


def _moments(group: Group) -> Mapping[str, float]:
    largest = {"max_exp_avg_sq": 0.0} if group.get("amsgrad") else {}
    return {"exp_avg": 0.0, "exp_avg_sq": 0.0, **largest}


def _averages(group: Group) -> Mapping[str, float]:
    mean = {"grad_avg": 0.0} if group["centered"] else {}
    return {"square_avg": 0.0, **_momentum(group), **mean}


def _sums(group: Group) -> Mapping[str, float]:
    return {"sum": number_of("initial_accumulator_value", group["initial_accumulator_value"])}


_ADAM = ("lr", "betas", "eps", "weight_decay", "amsgrad")

KINDS = (
    OptimizerKind(
        "sgd",
        torch.optim.SGD,
        ("lr", "momentum", "dampening", "weight_decay", "nesterov"),
        _momentum,
        counts_steps=False,
    ),
    # A subclass comes before its base.
    OptimizerKind("adamw", torch.optim.AdamW, _ADAM, _moments),
    OptimizerKind("adam", torch.optim.Adam, _ADAM, _moments),
    OptimizerKind(
        "rmsprop",
        torch.optim.RMSprop,
        ("lr", "alpha", "eps", "weight_decay", "momentum", "centered"),
        _averages,
    ),
    OptimizerKind(
        "adagrad",
        torch.optim.Adagrad,
        ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps"),
        _sums,
        begin=True,
    ),
    OptimizerKind("lamb", LAMB, ("lr", "betas", "eps", "weight_decay"), _moments),
    OptimizerKind(
        "lars",
        LARS,
        ("lr", "momentum", "weight_decay", "trust", "eps"),
        _momentum,
        counts_steps=False,
    ),
)


_FIXED = frozenset({"nesterov", "amsgrad", "centered", "initial_accumulator_value"})
"""Options that choose a formula, or what state begins as."""


def kind_of(optimizer: Optimizer) -> OptimizerKind:
    """Return the kind of `optimizer`. Raises `SambaError` for one that is of none of `KINDS`."""
    for kind in KINDS:
        if isinstance(optimizer, kind.type) and _same_formula(optimizer, kind.type):
            decoupled = kind.name == "adam" and optimizer.defaults["decoupled_weight_decay"]
            return KINDS[1] if decoupled else kind
    known = ", ".join(kind.type.__name__ for kind in KINDS)
    raise SambaError(
        f"the optimizer {type(optimizer).__name__} cannot be compiled; use one of {known} of "
        f"samba.optim or torch.optim"
    )


def argin_options(kind: OptimizerKind) -> tuple[str, ...]:
    """Return the options of groups of this kind that are numbers which a run may set."""
    return tuple(option for option in kind.options if option not in _FIXED)


def group_names(optimizers: Sequence[Optimizer]) -> dict[int, tuple[str, ...]]:
    """Return what the parameter groups of each optimizer are called in a program, by its id.

    The region name of the optimizer or its kind, as `adamw.0`, `adamw.1` where several groups
    share it: then `adamw.lr` is the rate of all of them. An optimizer keeps the names that it was
    given first, so that it may be asked for alone later.
    """
    bases = {
        id(item): getattr(item, "argin_region_name", "") or kind_of(item).name
        for item in optimizers
    }
    shares = Counter(bases[id(item)] for item in optimizers for _ in item.param_groups)
    given: Counter[str] = Counter()
    found = {}
    for item in optimizers:
        base, known = bases[id(item)], item.__dict__.get("_samba_group_names", ())
        fresh = []
        for _ in item.param_groups:
            fresh.append(base if shares[base] == 1 else f"{base}.{given[base]}")
            given[base] += 1
        if len(known) != len(fresh):
            known = item.__dict__["_samba_group_names"] = tuple(fresh)
        found[id(item)] = known
    return found


def trained(group: Group) -> Iterator[Tensor]:
    """Yield the parameters of a group that are not frozen."""
    parameters = group["params"]
    assert isinstance(parameters, list)
    return (parameter for parameter in parameters if parameter.requires_grad)


def _same_formula(optimizer: Optimizer, known: type[Optimizer]) -> bool:
    """Return whether steps of `optimizer` are those of the class `known`, not overridden."""
    ours = inspect.unwrap(SambaOptimizer.step), inspect.unwrap(known.step)
    return inspect.unwrap(type(optimizer).step) in ours


def number_of(option: str, value: object) -> float:
    """Return an option, which torch allows to be a tensor, as a number."""
    if not RATE.fits(value):
        raise SambaError(f"an optimizer has {option}={value!r}, expected a number")
    return float(cast(SupportsFloat, value))
