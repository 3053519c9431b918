"""What `SambaSession.run` makes of its arguments: sections in order, hyperparameters."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import TYPE_CHECKING, TypeVar

from .errors import SambaError
from .selected import Selected

if TYPE_CHECKING:
    import torch

    from pef.program import Program
    from sambarun.schedule import Reduction

    from .optim.values import Values

_T = TypeVar("_T")
_USERS = ("GRADNORM", "OPT")
_USUAL = frozenset({"lr", "momentum", "weight_decay", "p"})
"""Hyperparameters that applications give whether the model has them or not."""

_LEFT_OUT = {
    "momentum": " Its optimizers have no such term.",
    "weight_decay": " Its optimizers have no such term.",
    "p": " Dropout of rate 0 is left out when it is compiled.",
}
"""Those of them that change training, and why a program may not have them."""
_CHANGING = _LEFT_OUT.keys()

_CURES = {
    "ZEROGRAD": "compile it with config_dict={'grad_accumulation_steps': N}, N above 1",
    "BCKWD": "compile it with an optimizer, and without --inference",
    "REDUCE": "compile it with --data-parallel",
    "GRADNORM": "compile it with max_grad_norm of the optimizer",
    "OPT": "compile it with an optimizer, and without --inference",
}
"""Types of sections that not every PEF has, and how to get them."""


class UnknownHyperparameterWarning(UserWarning):
    """A hyperparameter that the PEF does not have; it is ignored."""


@dataclass(frozen=True)
class Asked:
    """Which sections a run is asked for; nothing means the whole schedule.

    `begin` is the first call to run, `end` the first that is not run any more. `reduction` says how
    REDUCE sections among them run.
    """

    types: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()
    begin: int | None = None
    end: int | None = None
    reduction: Reduction = "none"


def asked_for(
    section_types: str | Iterable[str],
    section_ids: int | Iterable[int | Iterable[int]],
    begin: int | None,
    end: int | None,
) -> Asked:
    """Return what the arguments of a run ask for.

    Raises `SambaError` for what contradicts, and for what is no name or no number.
    """
    listing: object = section_types
    if not isinstance(listing, Iterable):
        raise SambaError(f"section_types is {listing!r}; give names, such as ['FWD', 'OPT']")
    types = (section_types,) if isinstance(section_types, str) else tuple(section_types)
    if not all(isinstance(kind, str) for kind in types):
        raise SambaError(f"section_types is {section_types!r}; give names, such as ['FWD', 'OPT']")
    ids = tuple(_numbers("section_ids", section_ids))
    for name, call in (("run_from_call_id", begin), ("run_until_call_id", end)):
        single: object = call
        if isinstance(single, Iterable) and not isinstance(single, str):
            raise SambaError(f"{name} has {call!r}; give one whole number")
        if call is not None and [*_numbers(name, call)] < [0]:
            raise SambaError(f"{name} is {call}; calls go from 0")
    if types and ids:
        raise SambaError("section_types and section_ids are both given; give one of them")
    if (types or ids) and (begin, end) != (None, None):
        raise SambaError("sections and call ids are both given; give one of them")
    if begin is not None and end is not None and begin >= end:
        raise SambaError(
            f"run_from_call_id is {begin}, not before run_until_call_id, {end}, which is not run "
            f"itself: nothing would run"
        )
    return Asked(tuple(kind.upper() for kind in types), ids, begin, end)


def _numbers(name: str, given: object) -> Iterator[int]:
    """Yield the whole numbers in `given`, one of them or lists of them at any depth."""
    try:
        if isinstance(given, Iterable) and not isinstance(given, str):
            for item in given:
                yield from _numbers(name, item)
        else:
            yield index(given)  # type: ignore[arg-type]  # which is asked here
    except TypeError as error:
        raise SambaError(f"{name} has {given!r}; give whole numbers") from error


def selections(
    asked: Asked, program: Program, calls: range, *, train: bool, inference: bool
) -> tuple[Selected, ...]:
    """Return the runs that do what is asked for: the runtime follows the order of the schedule.

    Sections asked for in another order, or twice, take several runs. For `inference` the whole
    schedule is the forward sections. `calls` are those of the graph that is meant.
    """
    found = _selections(asked, program, calls, train=train, inference=inference)
    if asked.reduction == "none":
        return found
    return tuple(replace(part, reduction=asked.reduction) for part in found)


def _selections(
    asked: Asked, program: Program, calls: range, *, train: bool, inference: bool
) -> tuple[Selected, ...]:
    from pef.states import is_training

    trains = is_training(program)
    train = train and trains
    if asked.ids:
        return tuple(
            Selected(section_ids=tuple(ids), train=train)
            for ids in _ascending(asked.ids, _places(program.schedule))
        )
    if asked.types:
        _require_types(asked.types, program)
        called = program.schedule[calls.start : calls.stop]
        kinds = [program.sections[section].type.name for section in called]
        wanted = asked.types if asked.reduction == "none" else _with_reduction(asked.types, kinds)
        return tuple(
            Selected(section_types=tuple(types), train=train)
            for types in _ascending(wanted, _places(kinds))
        )
    if (asked.begin, asked.end) == (None, None):
        return (Selected(section_types=("FWD",) if inference and trains else None),)
    return (Selected(calls=_calls(asked, calls), train=train),)


def _calls(asked: Asked, calls: range) -> tuple[int, ...]:
    """Return the calls asked for. Raises `SambaError` for one that is not among `calls`."""
    begin = calls.start if asked.begin is None else asked.begin
    end = calls.stop if asked.end is None else asked.end
    there = f"the calls go from {calls.start} to {calls.stop - 1}"
    if begin not in calls:
        raise SambaError(f"run_from_call_id is {begin}; {there}")
    if not calls.start < end <= calls.stop:
        raise SambaError(
            f"run_until_call_id is {end}; {there}, and the one given is the first that is not run"
        )
    return tuple(range(begin, end))


def _require_types(types: Iterable[str], program: Program) -> None:
    """Raise `SambaError` for section types that the program does not have, with the cures."""
    there = list(dict.fromkeys(section.type.name for section in program.sections))
    missing = [kind for kind in dict.fromkeys(types) if kind not in there]
    if missing:
        cures = "".join(f"; {cure}" for cure in dict.fromkeys(map(_CURES.get, missing)) if cure)
        raise SambaError(
            f"the PEF has no sections of type {', '.join(missing)}; it has {', '.join(there)}"
            f"{cures}"
        )


def _with_reduction(types: tuple[str, ...], kinds: Sequence[str]) -> tuple[str, ...]:
    """Return `types` with REDUCE before the one that first uses gradients, if nobody named it.

    Replicas that update parameters with gradients of their own would drift apart.
    """
    users = [kind for kind in _USERS if kind in kinds]
    if "REDUCE" in types or "REDUCE" not in kinds or not users or users[0] not in types:
        return types
    at = types.index(users[0])
    return (*types[:at], "REDUCE", *types[at:])


def _places(schedule: Sequence[_T]) -> dict[_T, int]:
    """Return where each item first is in `schedule`."""
    return {item: call for call, item in reversed([*enumerate(schedule)])}


def _ascending(wanted: Sequence[_T], places: Mapping[_T, int]) -> Iterator[list[_T]]:
    """Cut `wanted` where it goes back in the schedule; what is not there stays for an error."""
    part: list[_T] = []
    for item in wanted:
        if part and places.get(item, -1) <= places.get(part[-1], -1):
            yield part
            part = []
        part.append(item)
    yield part


class Hyperparameters:
    """The hyperparameters of a program: which it has, and dropout rates while it evaluates.

    Unknown names are ignored, as applications give more than a PEF needs: with one warning each,
    but for those that most applications give and that would change nothing.
    """

    def __init__(self, program: Program) -> None:
        self.names = tuple(argin.name for argin in program.argins)
        self._known: dict[str, bool] = {}
        self._told: set[str] = set()
        self.rates = tuple(name for name in self.names if name.rpartition(".")[2] == "p")
        self.seeds = tuple(name for name in self.names if name.rpartition(".")[2] == "seed")
        self._muted: dict[str, float] = {}
        self._values: Values | None = None
        self._news: Mapping[str, float] = {}

    def follow(
        self, optimizers: Sequence[torch.optim.Optimizer], graphs: Collection[str] = ()
    ) -> None:
        """Let the numbers of `optimizers` be those of the program from the next run on.

        `graphs` are the names of the graphs in a program that has several.
        """
        from .optim.values import Values

        self._values = Values(optimizers, self.names, graphs) if optimizers else None

    def settings(self, given: Mapping[str, float] | None) -> Mapping[str, float]:
        """Return what to set for a run: what is new of optimizers, and over it what is `given`."""
        known = {} if given is None else self.known(given)
        news = self._news = self._values.news() if self._values else {}
        if not news:
            return known
        if not known:
            return news
        from sambarun.hyperparams import matching

        said = matching([*known], self.names)
        return {**{name: news[name] for name in news if name not in said}, **known}

    def not_set(self) -> None:
        """Let what was new of optimizers be so again: the run has failed."""
        if self._values:
            self._values.take_back(self._news)

    def known(self, given: Mapping[str, float]) -> Mapping[str, float]:
        """Return those of `given` that the program has. Raises `SambaError` for what is no dict."""
        if not isinstance(given, Mapping):
            raise SambaError(
                f"hyperparam_dict is a {type(given).__name__}; give a dict, such as {{'lr': 0.1}}"
            )
        if all(map(self._known.get, given)):
            return given  # as usual
        unknown = {name for name in given if not self._knows(name)}
        told = {name for name in unknown if self._matters(name, given[name])} - self._told
        if told:
            self._told |= told
            reason = "".join(dict.fromkeys(_LEFT_OUT[name] for name in sorted(told & _CHANGING)))
            warnings.warn(
                f"the PEF has no hyperparameter {', '.join(sorted(told))}; it is ignored. "
                f"It has {', '.join(self.names) or 'none'}.{reason}",
                UnknownHyperparameterWarning,
                stacklevel=4,
            )
        return {name: value for name, value in given.items() if self._known[name]}

    def _matters(self, name: str, value: float) -> bool:
        """Return whether a user should hear that `name` is unknown."""
        trains = any(known.endswith(".lr") for known in self.names)
        return name not in _USUAL or (trains and name in _CHANGING and value != 0)

    def _knows(self, name: str) -> bool:
        """Return whether `name` sets something; looked up once, as steps give the same names."""
        found = self._known.get(name)
        if found is None:
            from sambarun import RunError
            from sambarun.hyperparams import matching

            try:
                found = bool(matching([name], self.names))
            except RunError:
                found = False
            self._known[name] = found
        return found

    def in_mode(
        self, given: Mapping[str, float], now: Callable[[], Mapping[str, float]], *, train: bool
    ) -> Mapping[str, float]:
        """Return what to set for a run: without `train` all dropout rates are 0.

        They come back with the next run that trains; what is given meanwhile is what comes back.
        """
        if train and not self._muted:
            return given
        if train:
            back, self._muted = self._muted, {}
            return {**back, **given}
        if not self._muted:
            values = now()
            self._muted = {name: values[name] for name in self.rates}
        for name in self.rates:
            value = given.get(name, given.get("p"))
            if value is not None:
                self._muted[name] = value
        others = {n: v for n, v in given.items() if n != "p" and n not in self.rates}
        return {**others, **dict.fromkeys(self.rates, 0.0)}
