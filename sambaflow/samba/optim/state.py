"""The state of optimizers on the host, under its names on the device.

    state[p]["exp_avg"]     <parameter>__exp_avg
    state[p]["step"]        <group>__step, one for all parameters of a group

and so for every slot of `settings.KINDS`; torch's keys are the compiler's suffixes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from pef.graphs import belonging

from .base import HALF
from .settings import Group, OptimizerKind, group_names, kind_of, trained

_STEP = "step"


class KeptState(NamedTuple):
    """A tensor that an optimizer keeps of `parameter`: torch's `key`, and whose it is.

    `owner` is the name of its parameter; of what counts the steps of a group, that of the group.
    """

    parameter: str
    owner: str
    key: str
    tensor: Tensor

    @property
    def counts(self) -> bool:
        """Whether it counts steps, which the device does for a group, and torch for a parameter."""
        return self.key == _STEP

    @property
    def name(self) -> str:
        """What it is called."""
        return belonging(self.owner, self.key)


def kept_states(optimizers: Iterable[Optimizer], names: Mapping[int, str]) -> Iterator[KeptState]:
    """Yield the state of `optimizers` for the parameters whose ids have `names`.

    State that does not exist yet is made, as it is before the first step.
    What counts the steps of a group is yielded once for each parameter, as torch counts for each.
    """
    items = list(optimizers)
    called = group_names(items)
    for optimizer in items:
        kind = kind_of(optimizer)
        for name, group in zip(called[id(optimizer)], optimizer.param_groups, strict=True):
            for parameter in trained(group):
                if id(parameter) in names:
                    own = names[id(parameter)]
                    for key, tensor in _state(optimizer, kind, group, parameter).items():
                        yield KeptState(own, name if key == _STEP else own, key, tensor)


def named_states(
    optimizers: Iterable[Optimizer], names: Mapping[int, str]
) -> Iterator[tuple[str, Tensor]]:
    """Yield what `kept_states` does, as pairs of a name and a tensor."""
    return ((state.name, state.tensor) for state in kept_states(optimizers, names))


def forget_new(
    optimizers: Iterable[Optimizer], names: Mapping[int, str], updated: Collection[str]
) -> None:
    """Leave no state of parameters that are not among `updated`, unless it has something to keep.

    Torch has none of parameters that never had a gradient, and a checkpoint what it had before.
    """
    for optimizer in optimizers:
        kind = kind_of(optimizer)
        for group in () if kind.begin else optimizer.param_groups:
            for parameter in trained(group):
                kept = optimizer.state.get(parameter)
                idle = names.get(id(parameter), "") not in updated
                if kept and idle and _is_new(kept, kind.slots(group)):
                    del optimizer.state[parameter]


def _is_new(kept: Mapping[str, Tensor], slots: Mapping[str, float]) -> bool:
    """Tell whether the state of a parameter is as before the first step."""
    firsts = {**slots, _STEP: 0.0}
    return all(bool((kept[key] == first).all()) for key, first in firsts.items() if key in kept)


def _state(
    optimizer: Optimizer, kind: OptimizerKind, group: Group, parameter: Tensor
) -> dict[str, Tensor]:
    """Return the state of `parameter`, complete as torch expects it."""
    slots = kind.slots(group)
    if not slots:
        return {}  # looking it up would leave an entry that torch does not have
    kept = optimizer.state[parameter]
    if kind.counts_steps and kept.get(_STEP) is None:
        kept[_STEP] = torch.tensor(0.0)
    for slot, first in slots.items():
        if kept.get(slot) is None:
            kept[slot] = _filled(optimizer, parameter, first)
    return {key: kept[key] for key in (*slots, _STEP) if key in kept}


def _filled(optimizer: Optimizer, parameter: Tensor, value: float) -> Tensor:
    """Return a tensor on the host like `parameter`, which may have no values yet itself."""
    wide = getattr(optimizer, "fp32_params", False) and parameter.dtype in HALF
    dtype = torch.float32 if wide else parameter.dtype
    # Zeros need no memory until they are written.
    if not value:
        return torch.zeros(parameter.shape, dtype=dtype)
    return torch.full(parameter.shape, value, dtype=dtype)
