"""Arguments that several calls of a session take: their types, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from pef.warned import warn
from pef.wording import did_you_mean
from sambaflow.samba.errors import SambaError

from .app_options import as_given, defaults, spelled_option
from .checked import require
from .kinds import COUNT, FLAG, ArgumentKind, whole

Optimizers: TypeAlias = "torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None"
Inputs: TypeAlias = "Sequence[object] | Mapping[str, object] | Tensor | None"

LossIndices: TypeAlias = "int | Sequence[int | Sequence[int]] | None"
"""Outputs that the backward pass starts from, by number; a number may stand in a tuple."""

ReductionMode = Literal["normal", "inorder", "optimal"]
"""How the reduction of gradients overlaps with sections."""

REDUCTION_MODES: tuple[ReductionMode, ...] = ("normal", "inorder", "optimal")
MAPPINGS = ("section", "spatial")

STEPS_OF_GRADIENTS = ("grad_accumulation_steps", "gradient_accumulation_steps")
"""What applications call the number of backward passes before a step of the optimizer."""

_STEPS = ArgumentKind(f"{COUNT.words} above 0", lambda v: COUNT.fits(v) and whole(v) > 0)
_TYPED = {
    **dict.fromkeys(("inference", "data_parallel", "gradient_accumulation"), FLAG.or_none()),
    **dict.fromkeys(STEPS_OF_GRADIENTS, _STEPS.or_none()),
}
"""Options that decide something by being true, or by their number."""

COUNTING = (
    *_TYPED,
    *("optim_level", "mapping", "arch", "graphamp_preset", "optimization_rules"),
    *("output_folder", "pef_name", "pef", "command"),
)
"""Options that change what is compiled, where it goes, or what is traced against."""


def listed(optimizers: Optimizers) -> tuple[torch.optim.Optimizer, ...]:
    """Return one optimizer, a list of them or None as a tuple.

    Warns of a list without any: nobody makes one in order to train nothing.
    """
    if optimizers is None:
        return ()
    given: tuple[object, ...] = (
        tuple(optimizers) if isinstance(optimizers, Iterable) else (optimizers,)
    )
    found = tuple(item for item in given if isinstance(item, torch.optim.Optimizer))
    odd = [type(item).__name__ for item in given if not isinstance(item, torch.optim.Optimizer)]
    if odd:
        raise SambaError(
            f"{', '.join(odd)} is no optimizer; give one of samba.optim or torch.optim, a list of "
            f"them, or None"
        )
    if not found:
        warn("the list of optimizers is empty, so nothing trains; None says so without a warning")
    return found


def check_mapping(mapping: object) -> str | None:
    """Return `mapping`, None or nothing too. Raises `SambaError` for one that there is not."""
    if mapping is None or (isinstance(mapping, str) and mapping in (*MAPPINGS, "")):
        return mapping
    raise SambaError(
        f"there is no mapping {mapping!r}{did_you_mean(str(mapping), MAPPINGS)}; it is one of "
        f"{', '.join(MAPPINGS)}"
    )


def check_options(options: Mapping[str, object]) -> None:
    """Raise `SambaError` for an option that is no flag, or no number, where it has to be one.

    Names that look misspelt are told.
    """
    tell_misspelt(options)
    for name, kind in _TYPED.items():
        require(name, options.get(name), kind)


_ALIKE = 0.86
"""How like a word is that was meant: `peft` is not `pef`, `infrence` is `inference`."""


class MisspeltOptionWarning(UserWarning):
    """An option that changes nothing, and reads like one that would and is not there."""


def tell_misspelt(options: Mapping[str, object]) -> None:
    """Warn of names in `options` that nothing reads, where one that counts is like them and absent.

    Applications hand over all that their command line has, among it much of their own; all that
    counts is there then.
    """
    absent = [name for name in COUNTING if name not in options]
    odd = [name for name in options if name not in COUNTING] if absent else []
    if not odd:
        return

    known = defaults()
    for name in odd:
        if name in known:
            continue
        alike = [option for option in absent if _reads_like(name, option)]
        hint = _spelled(name, absent) or did_you_mean(name, alike)
        if hint:
            warn(f"there is no option '{name}'{hint}; it changes nothing", MisspeltOptionWarning)


_WHOLE = ("command", "log_level")
"""Options that are in what a whole command line has, and that nobody writes for one call."""
_ELSEWHERE = (
    "all_regions_hbm",
    "arch",
    "compiler_mode",
    "enable_coe",
    "enable_distribution_pass",
    "enable_mixed_precision_ops",
    "enable_multi_input_broadcast",
    "enable_pcu_scaling",
    "enable_safe_stochastic_rounding",
    "hbm_auto_alloc",
    "loop_conversion",
    "o1_experimental_opts",
    "optimize_concat_split",
    "run_early_tp",
    "skip_pnr_aware",
    "target_sambaflow_version",
    "tiling_accum",
    "use_air_ce",
    "use_o1_default_rules",
    "verbose",
    "weight_grad_reduce",
)
"""Options of models of other versions, which the command line does not have."""


def require_known(given: Mapping[str, object]) -> None:
    """Raise `SambaError` for names in `given`, options of one call, that there are not.

    In a whole command line, `vars(args)`, these are the application's own.
    """
    if not given or any(name in given for name in _WHOLE):
        return
    known = (*COUNTING, *defaults(), *_ELSEWHERE)
    odd = [f"'{name}'{_hint(str(name), known)}" for name in given if name not in known]
    if odd:
        raise SambaError(
            f"config_dict: there is no option {', '.join(odd)}; give options of the command line, "
            "or vars(args), in which an application has its own, too"
        )


def _hint(name: str, known: Sequence[str]) -> str:
    """Return the option that `name` may mean: what it is to a command line, or is most like."""
    option = spelled_option(name)
    return f" (did you mean {as_given(option)}?)" if option else did_you_mean(name, known)


def _spelled(name: str, absent: Sequence[str]) -> str:
    """Return the option of `absent` that `name` spells with dashes or by a value, as `o1` does.

    Other short spellings, `b` and `n`, are as likely an application's own.
    """
    option = spelled_option(name)
    if option is None or option.attribute not in absent:
        return ""
    clear = "-" in name or option.constant not in (None, True)
    return f" (did you mean {as_given(option)}?)" if clear else ""


def _reads_like(name: str, option: str) -> bool:
    """Tell whether `name` is `option` with slips in its words, or without its first ones.

    One that has other words is an application's own: `input_folder`, `gradient_checkpointing`.
    """
    words, others = name.lower().replace("-", "_").split("_"), option.split("_")
    if sorted("".join(words)) == sorted("".join(others)):
        return True  # words that are joined or apart, letters that change places
    slips = len(words) == len(others) and all(
        get_close_matches(word, [other], cutoff=_ALIKE)
        for word, other in zip(words, others, strict=True)
    )
    return slips or (len(words) > 1 and option.endswith(f"_{name}"))


def options_of(args: object) -> dict[str, object]:
    """Return the options that are in `args`: a dict, a pydantic model or an object of attributes.

    Those of a command that are apart, as `samba_compile` and `samba_run`, are chosen by `command`.
    """
    if isinstance(args, Mapping):
        return {str(name): value for name, value in args.items()}
    command = getattr(args, "command", None)
    part = getattr(args, "samba_compile" if command == "compile" else "samba_run", None)
    if part is not None:
        return {**options_of(part), "command": command}
    dump = getattr(args, "model_dump", None)
    if callable(dump) and not isinstance(args, type):
        return dict(dump())
    if isinstance(args, type) or not hasattr(args, "__dict__"):
        raise SambaError(
            f"the options are {args!r}, expected CompileArgs, RunArgs, a dict, or another object "
            f"whose attributes they are"
        )
    return dict(vars(args))


def loss_numbers(loss_indices: LossIndices) -> tuple[int, ...] | None:
    """Return `loss_indices` as numbers of outputs; each may be a number or a tuple of one."""
    if loss_indices is None:
        return None
    given = loss_indices if isinstance(loss_indices, (list, tuple)) else (loss_indices,)
    try:
        return tuple(whole(item[-1] if isinstance(item, (list, tuple)) else item) for item in given)
    except (TypeError, IndexError) as error:
        raise SambaError(
            f"loss_indices is {loss_indices!r}; give numbers of outputs, such as [0]"
        ) from error


def checked_mode(mode: str) -> ReductionMode:
    """Return `mode`. Raises `SambaError` if it is none."""
    for known in REDUCTION_MODES:
        if mode == known:
            return known
    raise SambaError(
        f"there is no data_parallel_mode '{mode}'{did_you_mean(mode, REDUCTION_MODES)}; it is one "
        f"of {', '.join(REDUCTION_MODES)}"
    )
