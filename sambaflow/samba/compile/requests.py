"""What an application asks of a compilation, from the options of its command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from sambac import CompileOptions
from sambaflow.samba.arguments.app_options import ARCHES
from sambaflow.samba.arguments.options import (
    STEPS_OF_GRADIENTS,
    LossIndices,
    check_options,
    loss_numbers,
)
from sambaflow.samba.errors import SambaError

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
