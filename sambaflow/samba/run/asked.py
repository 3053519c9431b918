"""What `SambaSession.run` makes of its arguments: sections in order.

They are looked up (`Selector`), as training asks the same each time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeAlias, TypeVar, cast

from pef.program import Program, SectionType
from pef.stages import behind
from pef.states import is_training
from sambaflow.samba.arguments.kinds import whole
from sambaflow.samba.errors import SambaError
from sambarun import Selection
from sambarun.selection import Reduction

from .device import SambaDevice

_T = TypeVar("_T")
_USERS = tuple(kind.name for kind in behind(SectionType.REDUCE))
_CURES = {
    "ZEROGRAD": "compile it with config_dict={'grad_accumulation_steps': N}, N above 1",
    "BCKWD": "compile it with an optimizer, and without --inference",
    "REDUCE": "compile it with --data-parallel",
    "GRADNORM": "compile it with max_grad_norm of the optimizer",
    "OPT": "compile it with an optimizer, and without --inference",
}
"""Types of sections that not every PEF has, and how to get them."""


@dataclass(frozen=True)
class Asked:
    """Which sections a run is asked for; nothing means the whole schedule.

    `begin` is the first call to run, `end` the first that is not run any more. `reduction` says how
    REDUCE sections among them run, `graph` which graph of several is meant.
    """

    types: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()
    begin: int | None = None
    end: int | None = None
    reduction: Reduction = "none"
    graph: str | None = None


def asked_for(
    section_types: str | Iterable[str],
    section_ids: int | Iterable[int | Iterable[int]],
    begin: int | None,
    end: int | None,
) -> Asked:
    """Return what the arguments of a run ask for.

    Raises `SambaError` for what contradicts, and for what is no name or no number.
    """
    _require_order(section_types=section_types, section_ids=section_ids)
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


def _require_order(**given: object) -> None:
    """Raise `SambaError` for a set: Python may walk it in another order in each process."""
    for name, listing in given.items():
        if isinstance(listing, AbstractSet):
            raise SambaError(
                f"{name} is a {type(listing).__name__}, which has no order, and sections run in "
                f"the order given; give a list"
            )


def _numbers(name: str, given: object) -> Iterator[int]:
    """Yield the whole numbers in `given`, one of them or lists of them at any depth."""
    try:
        if isinstance(given, Iterable) and not isinstance(given, str):
            for item in given:
                yield from _numbers(name, item)
        else:
            yield whole(given)
    except TypeError as error:
        raise SambaError(f"{name} has {given!r}; give whole numbers") from error


def selections(
    asked: Asked, program: Program, calls: range, *, train: bool, inference: bool
) -> tuple[Selection, ...]:
    """Return the runs that do what is asked for: the runtime follows the order of the schedule.

    Sections asked for in another order, or twice, take several runs. For `inference` the whole
    schedule is the forward sections. `calls` are those of the graph that is meant.
    """
    trains = is_training(program)
    make = partial(Selection, graph=asked.graph, reduction=asked.reduction)
    train = train and trains
    if asked.ids:
        parts = _ascending(asked.ids, _places(program.schedule))
        return tuple(make(section_ids=tuple(ids), train=train) for ids in parts)
    if asked.types:
        _require_types(asked.types, program)
        called = program.schedule[calls.start : calls.stop]
        kinds = [program.sections[section].type.name for section in called]
        wanted = asked.types if asked.reduction == "none" else _with_reduction(asked.types, kinds)
        return tuple(
            make(section_types=tuple(types), train=train)
            for types in _ascending(wanted, _places(kinds))
        )
    if (asked.begin, asked.end) == (None, None):
        return (make(section_types=("FWD",) if inference and trains else None),)
    return (make(calls=_calls(asked, calls), train=train),)


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


_PLAIN = (str, int)


SectionsNamed: TypeAlias = (
    "tuple[str | Sequence[str], Sequence[int | Sequence[int]], int | None, int | None]"
)
"""The arguments of a run that name sections: types, ids, and the calls from and until which."""


class SectionsAsked(NamedTuple):
    """The arguments of a run that choose sections, as they were given, and what goes with them.

    `train` is whether dropout and updates are on, `inference` whether the graph is only evaluated.
    """

    types: str | Sequence[str]
    ids: Sequence[int | Sequence[int]]
    begin: int | None
    end: int | None
    reduction: Reduction
    train: bool
    inference: bool


class Selector:
    """Turns what runs ask for into selections of the program on `device`.

    `prepare` is called with those that were not asked for before.
    """

    def __init__(
        self, device: SambaDevice, prepare: Callable[[tuple[Selection, ...]], None]
    ) -> None:
        self._device = device
        self._prepare = prepare
        self._known: dict[Hashable, tuple[Selection, ...]] = {}

    def __call__(self, asked: SectionsAsked) -> tuple[Selection, ...]:
        """Return the runs that were asked for.

        Raises `SambaError` for what contradicts, and for sections that the program does not have.
        """
        listed = _key(asked[:2])
        key = (listed, asked[2:], self._device.graphs.graph)
        found = self._known.get(key)
        if found is None:
            found = self._made(asked)
            self._prepare(found)
            if listed is not None:
                self._known[key] = found
        return found

    def _made(self, asked: SectionsAsked) -> tuple[Selection, ...]:
        device = self._device
        wanted = replace(
            asked_for(asked.types, asked.ids, asked.begin, asked.end),
            reduction=asked.reduction,
            graph=device.graphs.graph,
        )
        return selections(
            wanted, device.program, device.calls, train=asked.train, inference=asked.inference
        )


def _key(given: object) -> Hashable:
    """Return what is equal for equal lists of texts and numbers, None for anything else.

    Types are in it, as 1 and True are one as keys. An iterator has no key: when it is gone another
    may have its identity, and its text.
    """
    kind = type(given)
    if kind in _PLAIN:
        return kind, given
    if kind is not list and kind is not tuple:
        return None
    parts = tuple(map(_key, cast("Sequence[object]", given)))
    return None if None in parts else (kind, parts)
