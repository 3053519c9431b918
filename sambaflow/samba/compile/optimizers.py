"""From optimizers, torch's or samba's, to what the compiler calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch.optim import Optimizer

import sambac
from pef.warned import warn
from sambac.optimizers import OPTIMIZERS
from sambaflow.samba.errors import SambaError
from sambaflow.samba.optim.base import HALF
from sambaflow.samba.optim.settings import (
    Group,
    OptimizerKind,
    group_names,
    kind_of,
    number_of,
    trained,
)


@dataclass(frozen=True)
class OptimizerSettings:
    """What a program is compiled with: optimizers, a parameter group each, and the norm to clip to.

    The norm is taken over the gradients of all parameters.
    """

    optimizers: tuple[sambac.Optimizer, ...]
    max_grad_norm: float | None


def settings_of(optimizers: Sequence[Optimizer], names: Mapping[int, str]) -> OptimizerSettings:
    """Return the settings that stand for `optimizers`; `names` maps ids of parameters to names.

    A parameter group becomes one optimizer of the compiler, over its parameters by name; those that
    are frozen or have no name are left out. Raises `SambaError` with all that the compiler cannot
    do faithfully.
    """
    problems = [text for item in optimizers for text in _problems(item, names)]
    norms = {getattr(item, "max_grad_norm", None) for item in optimizers}
    if len(norms) > 1:
        spelled = " and ".join(sorted(map(str, norms)))
        problems.append(
            f"the optimizers have the max_grad_norm {spelled}, but a program has one norm, over "
            f"all gradients; give all the same"
        )
    if problems:
        raise SambaError("; ".join(problems))
    made = []
    called = group_names(optimizers)
    for optimizer in optimizers:
        kind = kind_of(optimizer)
        _warn_of_half(optimizer)
        for name, group in zip(called[id(optimizer)], optimizer.param_groups, strict=True):
            patterns = tuple(names[id(p)] for p in trained(group) if id(p) in names)
            if patterns:
                made.append(_setting(kind, name, patterns, group))
    return OptimizerSettings(tuple(made), norms.pop() if norms else None)


def _problems(optimizer: Optimizer, names: Mapping[int, str]) -> Iterator[str]:
    kind_of(optimizer)
    title = type(optimizer).__name__
    if any(group.get("maximize") for group in optimizer.param_groups):
        yield f"{title} has maximize=True, which a program cannot do; minimise the negative loss"
    parameters = [p for group in optimizer.param_groups for p in trained(group)]
    if parameters and not any(id(parameter) in names for parameter in parameters):
        yield (
            f"no parameter of {title} belongs to the model; build the optimizer from the "
            f"parameters of the model that is compiled"
        )


def _warn_of_half(optimizer: Optimizer) -> None:
    """Warn where float32 copies of parameters are asked for: a program keeps none."""
    if not getattr(optimizer, "fp32_params", False):
        return
    if any(p.dtype in HALF for group in optimizer.param_groups for p in trained(group)):
        warn(
            "fp32_params: the program computes updates in float32 and rounds them to the type of "
            "the parameters after each step; keep the parameters in float32 to lose nothing"
        )


def _setting(
    kind: OptimizerKind, name: str, patterns: tuple[str, ...], group: Group
) -> sambac.Optimizer:
    values: dict[str, object] = {}
    for option in kind.options:
        value = group[option]
        if option == "betas":
            assert isinstance(value, tuple | list)
            values["beta1"], values["beta2"] = (number_of(option, beta) for beta in value)
        else:
            values[option] = value if isinstance(value, bool) else number_of(option, value)
    make: Callable[..., sambac.Optimizer] = OPTIMIZERS[kind.name]
    # As in torch, a parameter that gets no gradient stays as it is.
    return make(params=patterns, name=name, lenient=True, **values)
