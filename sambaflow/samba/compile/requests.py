"""What an application asks of a compilation: options of its command line, and optimizers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch.optim import Optimizer

import sambac
from pef.warned import warn
from sambac import CompileOptions
from sambac.optimizers import OPTIMIZERS
from sambaflow.samba.arguments.app_options import ARCHES
from sambaflow.samba.arguments.options import (
    STEPS_OF_GRADIENTS,
    LossIndices,
    check_options,
    loss_numbers,
)
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

_PRESETS = {"mp0": "float32", "mp1": "mixed", "mp4": "bfloat16"}
"""What the compiler calls the presets of `--graphamp-preset`."""


@dataclass(frozen=True)
class CompileRequest:
    """What an application asks of a compilation.

    `options` are those of the whole program, whether it trains or not. `optimizers` are torch's or
    samba's; without any, a program that does not `train` is made, or one with FWD and BCKWD.
    `loss_indices` are the outputs the backward pass starts from, None for `Traced.losses`.
    `metadata` is kept in the program.
    """

    train: bool
    options: CompileOptions
    optimizers: tuple[torch.optim.Optimizer, ...] = ()
    loss_indices: tuple[int, ...] | None = None
    data_parallel: bool = False
    accumulate: bool = False
    metadata: Mapping[str, object] = field(default_factory=dict)


def _precision(preset: object) -> str:
    """Return the precision that `preset` stands for; without one it is that of the model."""
    if not preset:
        return "float32"
    if preset not in _PRESETS:
        raise SambaError(f"graphamp_preset is {preset!r}; choose {', '.join(_PRESETS)}")
    return _PRESETS[str(preset)]


def _accumulates(config: Mapping[str, object]) -> bool:
    """Return whether gradients add up over runs, until ZEROGRAD clears them."""
    steps = max(
        (n for n in map(config.get, STEPS_OF_GRADIENTS) if isinstance(n, int)),
        default=1,
    )
    return bool(config.get("gradient_accumulation")) or steps > 1


def _arch(asked: object) -> str:
    """Return the chip to compile for: names of applications stand for descriptions there are."""
    return ARCHES.get(str(asked), str(asked)) if asked else "sn40l"


def request_of(
    config: Mapping[str, object],
    optimizers: tuple[torch.optim.Optimizer, ...],
    loss_indices: LossIndices,
    metadata: Mapping[str, object],
    *,
    io_host_memory: bool = False,
) -> CompileRequest:
    """Return what the options of a command line, `config`, and a program ask of a compilation.

    A program trains unless it is for inference. Without optimizers it trains, that is, it has a
    backward pass, only where the options say that it is not for inference.
    """
    check_options(config)
    inference = config.get("inference", not optimizers)
    return CompileRequest(
        train=not inference,
        optimizers=optimizers,
        loss_indices=loss_numbers(loss_indices),
        data_parallel=bool(config.get("data_parallel")),
        accumulate=_accumulates(config),
        metadata=metadata,
        options=_options(config, io_host_memory=io_host_memory),
    )


def _options(config: Mapping[str, object], *, io_host_memory: bool) -> CompileOptions:
    level, rules = str(config.get("optim_level") or "o3").upper(), config.get("optimization_rules")
    return CompileOptions(
        level=level,  # type: ignore[arg-type]  # checked there
        mapping=str(config.get("mapping") or "section"),  # type: ignore[arg-type]
        arch=_arch(config.get("arch")),
        precision=_precision(config.get("graphamp_preset")),  # type: ignore[arg-type]
        io_host_memory=io_host_memory,
        fusion_rules=str(rules) if rules and level == "O1" else None,
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
