"""Fields of the format that the report has no column for: they stand at its end, a row for each.

So a field that is new is seen before somebody has found the best place for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import IntEnum
from functools import cache
from types import MappingProxyType
from typing import Any, get_args, get_type_hints

from pef.program import Program

from .rows import MoreRow

_PLACED: Mapping[str, str] = MappingProxyType({
    "Alias": "name symbol api",
    "Allocation": "region address size name spilled shared reason cost",
    "Argin": "name symbol default group option",
    "DeviceNumber": "name value unit origin source",
    "DataRef": "segment offset size",
    "Estimate": "latency flops pcus pmus sram bytes_in bytes_out bytes_weights limited_by "
    "launch fill held compute streams link",
    "FusionGroup": "name operators",
    "HostKernel": "kind section inputs outputs parameters",
    "NamedGraph": "name inputs outputs first_call calls model role policy_latency",
    "Operator": "name op_type node flops pcus declared",
    "Piece": "offset data",
    "Port": "name symbol gradient",
    "Producer": "tool version options source source_hash libraries",
    "Program": "producer requires arch regions allocations symbols programs sections schedule "
    "graphs segments argins host_kernels aliases warnings device",
    "Region": "kind capacity used persistent peak_live bandwidth",
    "Requirements": "opsets features",
    "Section": "name type variants inputs weights outputs groups estimate in_place",
    "SectionProgram": "graph inputs weights outputs call_form requires",
    "Segment": "name size pieces",
    "Symbol": "name kind dtype shape type allocation offset size first_call last_call data origins "
    "duration parameter pack declared",
    "Variant": "program zeros nonzeros",
})  # fmt: skip
"""The fields of each class that `building` has a place for; bytes of segments are not told."""


def more(program: Program) -> list[MoreRow]:
    """Return the fields of `program` without a place that have another value than their default.

    `of` says whose field it is, by the way there: `sections[3].estimate`.
    """
    return list(_rows(program, ""))


def _rows(row: object, way: str) -> Iterator[MoreRow]:
    if not is_dataclass(row) or isinstance(row, type) or type(row) not in _telling(Program):
        return
    for field in fields(row):
        value = getattr(row, field.name)
        inner = f"{way}.{field.name}" if way else field.name
        if is_dataclass(value):
            yield from _rows(value, inner)
        elif isinstance(value, tuple) and value and is_dataclass(value[0]):
            for number, item in enumerate(value):
                yield from _rows(item, f"{inner}[{number}]")
        elif field.name in _left(type(row)) and value != _default(field):
            yield MoreRow(of=way, field=field.name, value=_plain(value))


@cache
def _left(row: type) -> frozenset[str]:
    """Return the fields of a class that have no place."""
    return frozenset(f.name for f in fields(row)) - frozenset(_PLACED.get(row.__name__, "").split())


@cache
def _telling(row: type) -> frozenset[type]:
    """Return `row` and the classes of what it holds, those that have or hold such fields."""
    held = {part for hint in get_type_hints(row).values() for part in _classes(hint)}
    found = frozenset[type]().union(*map(_telling, held))
    return found | {row} if found or _left(row) else found


def _classes(hint: object) -> Iterator[type]:
    """Yield the dataclasses that an annotation is made of."""
    if isinstance(hint, type) and is_dataclass(hint):
        yield hint
    for part in get_args(hint):
        yield from _classes(part)


def _default(field: Field[Any]) -> object:
    return field.default if field.default is not MISSING else ...


def _plain(value: object) -> object:
    if isinstance(value, IntEnum):
        return value.name
    return list(map(_plain, value)) if isinstance(value, tuple) else value
