"""What optimizers on the host say of the hyperparameters of a program.

The numbers of a parameter group are argins under the name of the group: `net.0.lr`, `net.0.beta1`.
An optimizer counts with what it holds when a run begins, so that torch's schedulers need not know
of the device. What it holds and no run can set, as `nesterov`, has to stay as it was traced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_, itemgetter
from typing import SupportsFloat, TypeAlias, cast

from torch.optim import Optimizer

from sambaflow.samba.errors import SambaError

from .settings import Group, argin_options, group_names, kind_of

_NORM = "max_grad_norm"
_MAXIMIZE = "maximize"
_NOTHING: Mapping[str, object] = {}
_PLAIN = frozenset({int, float, bool})

Held: TypeAlias = "tuple[Mapping[str, object], ...]"
"""For each parameter group, and at last for the norm, what it holds by argin."""


@dataclass(slots=True)
class _Watched:
    """A parameter group, and what it held when it was last looked at.

    `argins` are those that each number of `numbers` sets: one, more in a program of several graphs.
    `fixed` are the options that no argin sets, with what they were.
    """

    optimizer: Optimizer
    number: int
    get: Callable[[Group], tuple[object, ...]]
    argins: Mapping[str, tuple[tuple[str, ...], ...]]
    fixed: Mapping[str, object]
    last: tuple[object, ...] | None = None
    held: Mapping[str, object] = field(default_factory=dict)


class Values:
    """The numbers of `optimizers` that are among the argins `names` of a program.

    In a program of several graphs the name of one, of `graphs`, may stand before an argin.
    """

    def __init__(
        self,
        optimizers: Sequence[Optimizer],
        names: Collection[str],
        graphs: Collection[str] = (),
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
        self._clips = [item for item in optimizers if getattr(item, _NORM, None)][:1]
        self._norm = spelled(_NORM)

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
        if not self._clips:
            return (*map(_look, self._groups), _NOTHING)
        norm = [getattr(optimizer, _NORM, None) for optimizer in self._clips]
        clipped = {name: value for value in norm if value is not None for name in self._norm}
        return (*map(_look, self._groups), clipped)


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
    return _Watched(optimizer, number, get, there, {item: group[item] for item in fixed})


def _look(watched: _Watched) -> Mapping[str, object]:
    group = watched.optimizer.param_groups[watched.number]
    now = watched.get(group)
    if _same(now, watched.last):
        return watched.held
    plain = _is_plain(now)
    if not plain or now != watched.last:
        _require_same_formula(watched, group)
        numbers = {
            name: value
            for option, argins in watched.argins.items()
            for value, names in zip(_flat(group[option]), argins, strict=True)
            for name in names
        }
        if numbers != watched.held:
            watched.held = numbers
        watched.last = now if plain else None
    return watched.held


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


def _flat(value: object) -> tuple[object, ...]:
    """Return the numbers of an option as Python's; what is no number, as it is."""
    if isinstance(value, (tuple, list)):
        return tuple(part for item in value for part in _flat(item))
    single = getattr(value, "numel", lambda: 1)() == 1
    if single and hasattr(value, "__float__"):
        return (float(cast(SupportsFloat, value)),)
    return (value,)


def _parts(option: str) -> tuple[str, ...]:
    """Return what a program calls the numbers of an option of torch."""
    return ("beta1", "beta2") if option == "betas" else (option,)
