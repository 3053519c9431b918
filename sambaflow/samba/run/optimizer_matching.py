"""Does a PEF update parameters as these optimizers do? What differs, and what it leaves out.

The numbers of optimizers are hyperparameters, which may differ from those of the compilation: those
of the objects count, see `optim.values`. What chooses a formula may not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

import torch
from torch import nn

from pef.foreign import producer_options
from pef.graphs import group_of, trained_models
from pef.warned import warn
from pef.wording import listed
from sambaflow.samba.optim.settings import Group, group_names, kind_of, trained

from .device import SambaDevice

_Compiled: TypeAlias = "Mapping[str, object]"
"""The options of a parameter group in a program, and its kind."""

_TERMS = frozenset({"dampening", "lr_decay", "momentum", "weight_decay"})
"""Options of which a program may have nothing where they were zero when it was compiled."""


def differences(
    device: SambaDevice,
    owned: Collection[int],
    optimizers: tuple[torch.optim.Optimizer, ...],
) -> Iterator[str]:
    """Compare the parameter groups that train with those that were compiled; a line for each.

    `owned` are the ids of what the models train.
    """
    if not (device.host.updates and optimizers):
        return
    given = {
        name
        for _, name, group in _groups(optimizers)
        if any(id(parameter) in owned for parameter in trained(group))
    }
    compiled = _compiled(device)
    names = sorted(given | set(compiled))
    own = {spelled: name for name in names for spelled in _spelled(device, name)}
    own |= {name: name for name in names}
    rates = [argin.group for argin in device.program.argins if argin.option == "lr"]
    updated = {own.get(group, group) for group in rates}
    idle = set(compiled) - updated  # no loss depends on what is in them
    if given - idle != updated:
        yield (
            f"the parameter groups of optimizers are {', '.join(sorted(given)) or 'none'}, in the "
            f"PEF they are {', '.join(sorted(updated))}{'' if given else _frozen(optimizers)}"
        )
    yield from _other_formulas(compiled, optimizers)


def other_members(
    device: SambaDevice, graph: str, model: nn.Module, optimizers: tuple[torch.optim.Optimizer, ...]
) -> Iterator[str]:
    """Compare what the parameter groups of `model` train with what they were compiled for.

    `graph` is what a program of several graphs calls the model, empty in one of one model. Yields
    a line for each group that trains more or fewer parameters: a run trains those of the program.
    """
    options = producer_options(device.program.producer.options)
    own = options.get("trained", {}).get(graph, {}) if graph else options
    compiled = {group["name"]: set(group["params"]) for group in own.get("optimizers", ())}
    paths = {id(parameter): path for path, parameter in model.named_parameters()}
    for _, name, group in _groups(optimizers):
        wanted = {paths[id(item)] for item in trained(group) if id(item) in paths}
        known = compiled.get(name, wanted)
        if wanted - known:
            yield f"'{name}' trains {_some(wanted - known)}, which the PEF does not train with it"
        if wanted and known - wanted:
            yield f"'{name}' does not train {_some(known - wanted)}, which the PEF trains with it"


def learning(
    models: Iterable[tuple[nn.Module, tuple[torch.optim.Optimizer, ...]]],
) -> dict[str, nn.Parameter]:
    """Return the parameters, by path, that the optimizers of each model train now."""
    found: dict[str, nn.Parameter] = {}
    for model, optimizers in models:
        own = {id(item) for _, _, group in _groups(optimizers) for item in trained(group)}
        found |= {path: item for path, item in model.named_parameters() if id(item) in own}
    return found


def _some(paths: Collection[str]) -> str:
    return listed(sorted(paths), separator=", ")


def _frozen(optimizers: Iterable[torch.optim.Optimizer]) -> str:
    """Return why nothing of `optimizers` trains where no parameter wants a gradient, else nothing.

    To compile again, which everything else asks for, would not help.
    """
    parameters = [p for item in optimizers for group in item.param_groups for p in group["params"]]
    if not parameters or any(parameter.requires_grad for parameter in parameters):
        return ""
    return (
        ": no parameter of theirs requires a gradient, as after tracing without an optimizer; "
        "model.requires_grad_() sets that again"
    )


def tell_what_has_no_effect(
    device: SambaDevice, optimizers: tuple[torch.optim.Optimizer, ...]
) -> None:
    """Warn of `optimizers` that update nothing, and of options that a PEF has no formula for."""
    if not optimizers:
        return

    if not device.host.updates:
        how = "without an optimizer" if device.host.trains else "for inference"
        warn(
            f"an optimizer is given, and {device.path} has no OPT sections: no run updates "
            f"parameters. The PEF was compiled {how}; compile the model again with the optimizer "
            f"to train it"
        )
        return
    norms = [getattr(optimizer, "max_grad_norm", None) for optimizer in optimizers]
    compiled = [model["max_grad_norm"] for model in _models(device) if model.get("max_grad_norm")]
    if compiled and not any(norms):
        warn(
            f"{device.path} clips gradients to the norm {compiled[0]}, as it was compiled, and "
            f"the optimizer has no max_grad_norm; give it one, or compile it again"
        )
    left_out = [*_left_out(device, optimizers)]
    if left_out:
        warn(
            f"{device.path} was compiled without {', '.join(left_out)}, which its runs leave out; "
            f"compile it again with the optimizer to use that"
        )


def _groups(
    optimizers: tuple[torch.optim.Optimizer, ...],
) -> Iterator[tuple[torch.optim.Optimizer, str, Group]]:
    """Yield the parameter groups with their optimizers and names."""
    called = group_names(optimizers)
    for optimizer in optimizers:
        for name, group in zip(called[id(optimizer)], optimizer.param_groups, strict=True):
            yield optimizer, name, group


def _models(device: SambaDevice) -> Iterator[Mapping[str, object]]:
    """Yield the options of each model in the program."""
    options = producer_options(device.program.producer.options)
    yield from (options, *options.get("trained", {}).values())


def _compiled(device: SambaDevice) -> dict[str, _Compiled]:
    """Return the parameter groups of the program by name, those without a gradient too.

    Names that nobody gave are empty: those of the optimizers of sambac.
    """
    found: dict[str, _Compiled] = {}
    for model in _models(device):
        groups = model.get("optimizers", ())
        assert isinstance(groups, list | tuple)
        found |= {group["name"]: group for group in groups}
    return found


def _other_formulas(
    compiled: Mapping[str, _Compiled], optimizers: tuple[torch.optim.Optimizer, ...]
) -> Iterator[str]:
    for optimizer, name, group in _groups(optimizers):
        known, kind = compiled.get(name), kind_of(optimizer)
        if known is None:
            continue
        if known["kind"] != kind.name:
            yield f"the optimizer of '{name}' is {kind.name}, in the PEF it is {known['kind']}"
            continue
        if group.get("maximize"):
            yield f"the optimizer of '{name}' has maximize=True, which a program cannot do"
        for option in kind.options:
            if isinstance(group[option], bool) and group[option] != known[option]:
                yield (
                    f"the optimizer of '{name}' has {option}={group[option]}, in the PEF it is "
                    f"{known[option]}"
                )


def _left_out(device: SambaDevice, optimizers: tuple[torch.optim.Optimizer, ...]) -> Iterator[str]:
    compiled = _compiled(device)
    for _, name, group in _groups(optimizers):
        known = compiled.get(name, {})
        for option in sorted(_TERMS & group.keys() & known.keys()):
            settable = any(
                argin.option == option and argin.group in _spelled(device, name)
                for argin in device.program.argins
            )
            if group[option] and not known[option] and not settable:
                yield f"the {option} of '{name}'"
    clipped = any(getattr(optimizer, "max_grad_norm", None) for optimizer in optimizers)
    if clipped and not any(model.get("max_grad_norm") for model in _models(device)):
        yield "max_grad_norm"


def _spelled(device: SambaDevice, name: str) -> list[str]:
    """Return what the program may call a parameter group: its name, or that of one in a model."""
    models = trained_models(device.program.graphs)
    return [name, *(group_of(model, name) for model in models)]
