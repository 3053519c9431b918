"""Which values are symbols, how long each lives, and the memory each asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pef.program import RegionKind

from .plans import Border, Buffer
from .view import DataflowView, ValueRole


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Positions in the schedule, inclusive: -1 is before the first call, its length after the last.

    `accesses` counts the calls that write or read the value, the caller's own included.
    """

    first: int
    last: int
    accesses: int


def symbol_lifetimes(
    view: DataflowView, borders: Sequence[Border], schedule: Sequence[int]
) -> dict[str, Lifetime]:
    """Return the lifetime of every value that crosses a section's border, in order of first use.

    Model inputs come first, in the model's order; weights follow where a section first reads
    them. A model input or output is a symbol even where no section touches it.
    """
    end = len(schedule)
    spans: dict[str, list[int]] = {name: [-1, -1, 1] for name in view.inputs}

    def touch(name: str, call: int) -> None:
        span = spans.setdefault(name, [call, call, 0])
        span[1] = max(span[1], call)
        span[2] += 1

    for call, section in enumerate(schedule):
        border = borders[section]
        for name in (*border.inputs, *border.weights, *border.outputs):
            touch(name, call)
    for name in view.outputs:
        touch(name, end)
    for name, span in spans.items():
        if view.values[name].role is ValueRole.WEIGHT:
            span[0], span[1] = -1, end
    return {name: Lifetime(*span) for name, span in spans.items()}


def memory_requests(
    view: DataflowView,
    lifetimes: dict[str, Lifetime],
    calls: int,
    *,
    io_region: RegionKind | None = None,
) -> tuple[Buffer, ...]:
    """Return a buffer for every symbol whose size is known at compile time.

    `calls` is the length of the schedule. Buffers count calls from 0: a model input occupies its
    memory from the first call on. `io_region` is where the user wants the model's inputs and
    outputs, if anywhere.
    """
    io_names = {*view.inputs, *view.outputs}
    last_call = max(calls - 1, 0)
    buffers = []
    for name, life in lifetimes.items():
        facts = view.values[name]
        if facts.nbytes is None:
            continue
        weight = facts.role is ValueRole.WEIGHT
        buffers.append(
            Buffer(
                name=name,
                size=facts.nbytes,
                first=min(max(life.first, 0), last_call),
                last=min(max(life.last, 0), last_call),
                persistent=weight,
                weight=weight,
                region=io_region if name in io_names and not weight else None,
                traffic=facts.nbytes * life.accesses,
            )
        )
    return tuple(buffers)
