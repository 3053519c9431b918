"""What optimizers on the host say of the hyperparameters of a program.

The numbers of a parameter group are argins under the name of the group: `net.0.lr`, `net.0.beta1`.
An optimizer counts with what it holds when a run begins, so that torch's schedulers need not know
of the device. What it holds and no run can set, as `nesterov`, has to stay as it was traced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import is_, itemgetter
from typing import SupportsFloat, TypeAlias, cast

from torch import Tensor
from torch.optim import Optimizer

from sambaflow.samba.errors import SambaError

from .settings import Group, argin_options, group_names, kind_of

_NORM = "max_grad_norm"
_MAXIMIZE = "maximize"
_NOTHING: Mapping[str, object] = {}
_ONE_GRAPH: Mapping[str, Sequence[Optimizer]] = {}
_PLAIN = frozenset({int, float, bool})

Held: TypeAlias = "tuple[Mapping[str, object], ...]"
"""For each parameter group, and at last for the norm, what it holds by argin."""


@dataclass(slots=True)
class _Watched:
    """A parameter group, and what it held when it was last looked at.

    `argins` are those that each number of `numbers` sets: one, more in a program of several graphs.
    `fixed` are the options that no argin sets, with what they were. `members` are the parameters
    that it was traced with, `listed` is the list of them that was seen last.
    """

    optimizer: Optimizer
    number: int
    get: Callable[[Group], tuple[object, ...]]
    argins: Mapping[str, tuple[tuple[str, ...], ...]]
    fixed: Mapping[str, object]
    members: tuple[Tensor, ...]
    listed: Sequence[Tensor]
    last: tuple[object, ...] | None = None
    held: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Clip:
    """An optimizer, whether it clipped gradients when it was traced, and the argins of its norm."""

    optimizer: Optimizer
    clips: bool
    argins: tuple[str, ...]


class Values:
    """The numbers of `optimizers` that are among the argins `names` of a program.

    In a program of several graphs the name of one may stand before an argin. `graphs` has the
    optimizers of each: graphs share rates of an optimizer that they share, and each has its norm.
    """

    def __init__(
        self,
        optimizers: Sequence[Optimizer],
        names: Collection[str],
        graphs: Mapping[str, Sequence[Optimizer]] = _ONE_GRAPH,
    ) -> None:
        def spelled(name: str) -> tuple[str, ...]:
            prefixed = (f"{graph}.{name}" for graph in graphs)
            return tuple(item for item in (name, *prefixed) if item in names)

        called = group_names(optimizers)
        self._groups = [
            _watched(optimizer, number, group, spelled)
            for optimizer in optimizers
            for number, group in enumerate(called[id(optimizer)])
        ]
        self._counts = [(optimizer, len(optimizer.param_groups)) for optimizer in optimizers]
        self._clips = [_clip(optimizer, names, graphs) for optimizer in optimizers]

    def look(self) -> Held:
        """Return what the optimizers hold now; what is as it was is the same object as before.

        Raises `SambaError` for an optimizer with other groups than when it was traced, and for
        another formula.
        """
        for optimizer, count in self._counts:
            if len(optimizer.param_groups) != count:
                raise SambaError(
                    f"the {type(optimizer).__name__} has {len(optimizer.param_groups)} parameter "
                    f"groups, and had {count} when it was traced; call trace_graph again"
                )
        return (*map(_look, self._groups), _norms(self._clips))


def news(now: Held, before: Held) -> dict[str, object]:
    """Return what is not as it was, by argin: all where nothing was before."""
    if now == before:
        return {}
    known = {name: value for group in before for name, value in group.items()}
    return {
        name: value
        for group in now
        for name, value in group.items()
        if name not in known or known[name] != value
    }


def _watched(
    optimizer: Optimizer, number: int, name: str, spelled: Callable[[str], tuple[str, ...]]
) -> _Watched:
    kind, group = kind_of(optimizer), optimizer.param_groups[number]
    argins = {
        option: tuple(spelled(f"{name}.{part}") for part in _parts(option))
        for option in argin_options(kind)
    }
    there = {option: found for option, found in argins.items() if all(found)}
    options = [*kind.options, *([_MAXIMIZE] if _MAXIMIZE in group else [])]
    fixed = [option for option in options if option not in there] if there else []
    get = itemgetter(*there, *fixed) if len(there) + len(fixed) > 1 else lambda _: ()
    members, listed = tuple(group["params"]), group["params"]
    return _Watched(
        optimizer, number, get, there, {item: group[item] for item in fixed}, members, listed
    )


def _clip(
    optimizer: Optimizer, names: Collection[str], graphs: Mapping[str, Sequence[Optimizer]]
) -> _Clip:
    """Return where a program has the norm of `optimizer`: one graph has it without its name."""
    owners = [graph for graph, items in graphs.items() if any(it is optimizer for it in items)]
    spelled = (next((n for n in (f"{g}.{_NORM}", _NORM) if n in names), "") for g in owners)
    argins = spelled if graphs else (name for name in (_NORM,) if name in names)
    clips = getattr(optimizer, _NORM, None) is not None
    return _Clip(optimizer, clips, tuple(dict.fromkeys(filter(None, argins))))


def _norms(clips: Iterable[_Clip]) -> Mapping[str, object]:
    """Return the norms by argin. Raises `SambaError` where an optimizer now clips, or no more.

    So it does for two norms of one argin, and for several numbers.
    """
    found: dict[str, object] = {}
    for clip in clips:
        norm = getattr(clip.optimizer, _NORM, None)
        if (norm is not None) is not clip.clips:
            had = "had one" if clip.clips else "had none"
            raise SambaError(
                f"the {type(clip.optimizer).__name__} has max_grad_norm={norm!r}, and {had} when "
                f"it was traced, which no run can change; compile and trace the model again"
            )
        if norm is None or not clip.argins:
            continue
        value = _counted(clip.optimizer, _NORM, norm, 1)[0]
        for argin in clip.argins:
            if found.setdefault(argin, value) != value:
                raise SambaError(
                    f"the optimizers have the max_grad_norm {found[argin]} and {value}, but the "
                    f"program has one for them, '{argin}'; give both the same"
                )
    return found or _NOTHING


def _look(watched: _Watched) -> Mapping[str, object]:
    group = watched.optimizer.param_groups[watched.number]
    try:
        now, listed = watched.get(group), group["params"]
    except KeyError as error:
        raise SambaError(
            f"the {type(watched.optimizer).__name__} has no {error} any more; give it a number"
        ) from None
    if listed is not watched.listed or len(listed) != len(watched.members):
        _require_same_members(watched, listed)
    if _same(now, watched.last):
        return watched.held
    plain = _is_plain(now)
    if not plain or now != watched.last:
        _require_same_formula(watched, group)
        numbers = {
            name: value
            for option, argins in watched.argins.items()
            for value, names in zip(_numbers(watched, option), argins, strict=True)
            for name in names
        }
        if numbers != watched.held:
            watched.held = numbers
        watched.last = now if plain else None
    return watched.held


def _require_same_members(watched: _Watched, listed: Sequence[Tensor]) -> None:
    """Raise `SambaError` for a group of other parameters: a run trains what was compiled."""
    if {*map(id, listed)} != {*map(id, watched.members)}:
        raise SambaError(
            f"the {type(watched.optimizer).__name__} has a group of {len(listed)} parameters, "
            f"which are not the {len(watched.members)} that it had when it was traced: a run "
            f"trains those; compile and trace the model again"
        )
    watched.listed = listed


def _require_same_formula(watched: _Watched, group: Group) -> None:
    other = [
        f"{option}={group[option]!r}, and had {option}={value!r}"
        for option, value in watched.fixed.items()
        if group[option] != value
    ]
    if other:
        raise SambaError(
            f"the {type(watched.optimizer).__name__} has {', '.join(other)} when it was traced, "
            f"which no run can change; compile and trace the model again"
        )


def _same(now: tuple[object, ...], last: tuple[object, ...] | None) -> bool:
    """Tell whether plain numbers are, one by one, the objects that they were.

    Most are: nobody sets them between two steps.
    """
    return last is not None and all(map(is_, now, last))


def _is_plain(value: object) -> bool:
    """Tell whether `value` stays what it is: a tensor or a list may hold something else later."""
    return type(value) in _PLAIN or (type(value) is tuple and all(map(_is_plain, value)))


def _numbers(watched: _Watched, option: str) -> tuple[object, ...]:
    """Return what an option of a group holds, a value for each argin."""
    value = watched.optimizer.param_groups[watched.number][option]
    return _counted(watched.optimizer, option, value, len(watched.argins[option]))


def _counted(optimizer: Optimizer, option: str, value: object, wanted: int) -> tuple[object, ...]:
    """Return the numbers in `value`. Raises `SambaError` if they are not as many as `wanted`."""
    found = _flat(value)
    if len(found) != wanted:
        raise SambaError(
            f"the {type(optimizer).__name__} has {option}={value!r}, expected "
            f"{wanted} number{'s' * (wanted > 1)}"
        )
    return found


def _flat(value: object) -> tuple[object, ...]:
    """Return the numbers in `value` as Python's, one after the other; what is none, as it is.

    Nothing of them changes in place, as tensors and arrays do.
    """
    listed = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(listed, (tuple, list)):
        return tuple(part for item in listed for part in _flat(item))
    if hasattr(listed, "__float__"):
        with suppress(OverflowError):  # a whole number beyond all floats: it is refused as it is
            return (float(cast(SupportsFloat, listed)),)
    return (listed,)


def _parts(option: str) -> tuple[str, ...]:
    """Return what a program calls the numbers of an option of torch."""
    return ("beta1", "beta2") if option == "betas" else (option,)
