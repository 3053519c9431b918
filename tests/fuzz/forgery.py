"""Forged programs: any field of any row of a PEF may change, the bytes of graphs and weights too.

What is forged is written with digests that fit, and without asking whether it is right: so does
somebody who means harm.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

import pef

NUMBERS = (0, 1, -1, 2, 3, 7, 64, 100, 4096, 2**15, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1)
FLOATS = (0.0, 1.0, -1.0, 0.5, 1e300, float("inf"), float("nan"))
TEXTS = (
    "",
    "x",
    "?",
    "i0",
    "o0",
    "w0",
    "main",
    "train",
    "../x",
    "{}",
    "[1]",
    "\N{SNOWMAN}",
    "a\0b",
)
# The rest says how many bytes there are; the writer stumbles over what the format cannot say.
_ROWS = (
    "symbols", "symbols", "programs", "programs", "sections", "sections", "allocations", "graphs",
    "regions", "schedule", "argins", "host_kernels", "aliases", "requires", "producer", "segments",
)  # fmt: skip


def forged(program: pef.Program, rng: random.Random) -> pef.Program:
    """Return `program` with one to three changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        name = rng.choice(_ROWS)
        if name == "segments":
            program = _with_other_bytes(program, rng)
        else:
            changed = _changed(getattr(program, name), program, rng)
            program = replace(program, **{name: changed})
    return program


def _with_other_bytes(program: pef.Program, rng: random.Random) -> pef.Program:
    """Return `program` with a few bytes of a segment changed."""
    at = rng.randrange(len(program.segments))
    segment = program.segments[at]
    pieces = list(segment.pieces)
    if not pieces:
        return program
    number = rng.randrange(len(pieces))
    content = bytearray(pieces[number].data)
    for _ in range(rng.randint(1, 4)):
        content[rng.randrange(len(content))] = rng.randrange(256)
    pieces[number] = pef.Piece(pieces[number].offset, bytes(content))
    segments = list(program.segments)
    segments[at] = replace(segment, pieces=tuple(pieces))
    return replace(program, segments=tuple(segments))


def _changed(value: Any, program: pef.Program, rng: random.Random) -> Any:
    """Return another value of the same type."""
    if isinstance(value, tuple):
        return _changed_row(value, program, rng)
    if is_dataclass(value):
        name = rng.choice([field.name for field in fields(value)])
        return replace(value, **{name: _changed(getattr(value, name), program, rng)})
    if isinstance(value, Enum):
        return rng.choice(list(type(value)))
    if isinstance(value, bool | int):
        return rng.choice((*NUMBERS, value + 1, max(value - 1, 0), *_indices(program)))
    if isinstance(value, float):
        return rng.choice(FLOATS)
    if isinstance(value, str):
        return rng.choice((*TEXTS, *_names(program)))
    return rng.choice((None, 0, 1, pef.DataRef(0, 0, 4))) if value is None else value


def _changed_row(row: tuple[Any, ...], program: pef.Program, rng: random.Random) -> tuple[Any, ...]:
    items = list(row)
    what = rng.choice(("change", "change", "change", "drop", "repeat", "swap", "other"))
    if not items:
        return tuple(rng.choice(((), (0,), (1,))) if what == "change" else ())
    at, to = rng.randrange(len(items)), rng.randrange(len(items))
    if what == "drop":
        del items[at]
    elif what == "repeat":
        items.insert(to, items[at])
    elif what == "swap":
        items[at], items[to] = items[to], items[at]
    elif what == "other":
        items[at] = items[to]
    else:
        items[at] = _changed(items[at], program, rng)
    return tuple(items)


def _indices(program: pef.Program) -> Iterator[int]:
    rows = (program.symbols, program.programs, program.sections, program.allocations)
    return (len(row) - 1 for row in rows)


def _names(program: pef.Program) -> Iterator[str]:
    yield from (symbol.name for symbol in program.symbols)
    yield from (symbol.type for symbol in program.symbols)
    for item in program.programs:
        yield from (*item.inputs, *item.weights, *item.outputs)
