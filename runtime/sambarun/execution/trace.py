"""A profile as events of the Chrome trace format, which Perfetto shows.

process 1   measured on this host     sections, operators inside them
process 2   modelled on the device    the same calls one after another, terms inside them
process 3   memory of the device      bytes in each region while the sections of process 1 run

Perfetto counts in whole nanoseconds, and nests what begins before another slice has ended: all
slices begin and end at such numbers, so that those one after another stay beside each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pef
from pef.costs import Estimate
from pef.text import visible

from .spans import OperatorSpan, Span

_Event = dict[str, Any]

_NS_PER_US = 1000
_NS, _US = 1e9, 1e6
_MEASURED, _MODELLED, _MEMORY = 1, 2, 3
_SECTIONS = 1


def events(
    program: pef.Program, spans: Sequence[Span], operators: Iterable[OperatorSpan]
) -> Iterator[_Event]:
    """Yield the events of a run of `program`: names, then the rest in the order of their times."""
    yield from _named(program.arch)
    timed = (*_measured(program, spans, operators), *_modelled(program, _run(spans)))
    # What holds others begins before them, or is longer.
    order = sorted(timed, key=lambda event: (event["pid"], event["ts"], -event["dur"]))
    yield from order
    yield from _counters(program, spans)


def _run(spans: Iterable[Span]) -> Iterator[Span]:
    return (span for span in spans if not span.kind)


def _measured(
    program: pef.Program, spans: Iterable[Span], operators: Iterable[OperatorSpan]
) -> Iterator[_Event]:
    for span in spans:
        yield _slice(_MEASURED, span.name, span.type, span.start, span.duration) | {
            "args": _section_args(program, span)
        }
    for each in operators:
        yield _slice(_MEASURED, each.name, each.op_type, each.start, each.duration) | {
            "args": _operator_args(program, each)
        }


def _named(arch: str) -> Iterator[_Event]:
    for process, name in (
        (_MEASURED, "measured on this host"),
        (_MODELLED, f"modelled on {arch}"),
        (_MEMORY, f"memory of {arch} (modelled)"),
    ):
        yield {"name": "process_name", "ph": "M", "pid": process, "args": {"name": visible(name)}}
        yield {
            "name": "process_sort_index", "ph": "M", "pid": process,
            "args": {"sort_index": process},
        }  # fmt: skip
        if process != _MEMORY:
            yield {
                "name": "thread_name", "ph": "M", "pid": process, "tid": _SECTIONS,
                "args": {"name": "sections"},
            }  # fmt: skip


def _slice(process: int, name: str, category: str, start: int, duration: int) -> _Event:
    """Return a slice; `start` and `duration` are in ns."""
    return {
        "name": visible(name), "cat": visible(category), "ph": "X", "ts": _us(start),
        "dur": _us(duration), "pid": process, "tid": _SECTIONS,
    }  # fmt: skip


def _section_args(program: pef.Program, span: Span) -> _Event:
    args: _Event = {"call": span.call, "section": span.section, "type": span.type}
    if not span.kind:
        args["provider"] = span.provider
        args["modelled_us"] = _US * program.sections[span.section].estimate.latency
    return args


def _operator_args(program: pef.Program, each: OperatorSpan) -> _Event:
    """Return what is modelled of an operator, too."""
    args: _Event = {"call": each.call, "section": each.section, "op_type": visible(each.op_type)}
    if each.node is None:
        return args
    groups = program.sections[each.section].groups
    found = next(op for group in groups for op in group.operators if op.node == each.node)
    args |= {"node": each.node, "flops": found.flops, "pcus": found.pcus}
    rate = _flops_per_pcu(program)
    if rate and found.pcus:
        args["modelled_us"] = _US * found.flops / (found.pcus * rate)
    return args


def _flops_per_pcu(program: pef.Program) -> float:
    """Return what one compute unit reaches in a second, 0 if the program does not say."""
    known = {each.name: each.value for each in program.device}
    if not known.get("pcus"):
        return 0.0
    return known.get("peak_flops", 0.0) * known.get("compute_efficiency", 0.0) / known["pcus"]


def _modelled(program: pef.Program, spans: Iterable[Span]) -> Iterator[_Event]:
    """Yield the same calls as the device would take them, one after another from 0."""
    now = 0.0
    for span in spans:
        estimate = program.sections[span.section].estimate
        begin, end = round(_NS * now), round(_NS * (now + estimate.latency))
        args = {"call": span.call, "section": span.section, "type": span.type}
        yield _slice(_MODELLED, span.name, span.type, begin, end - begin) | {"args": args}
        at = now
        for name, seconds in _terms(estimate):
            inner = round(_NS * at), min(round(_NS * (at + seconds)), end)
            if inner[0] < inner[1]:
                yield _slice(_MODELLED, name, "modelled", inner[0], inner[1] - inner[0])
            at += seconds
        now += estimate.latency


def _terms(estimate: Estimate) -> Iterator[tuple[str, float]]:
    """Yield the terms of a latency in the order in which they come."""
    yield "launch", estimate.launch
    yield "fill", estimate.fill
    yield "held", estimate.held
    yield (
        f"max(compute {_US * estimate.compute:.4g} us, streams {_US * estimate.streams:.4g} us)",
        max(estimate.compute, estimate.streams),
    )
    yield "link", estimate.link


def _counters(program: pef.Program, spans: Sequence[Span]) -> Iterator[_Event]:
    """Yield the bytes in each region at the beginning of each call, by planned lifetimes."""
    lives: dict[int, tuple[int, int]] = {}
    for symbol in program.symbols:
        if symbol.allocation is not None:
            first, last = lives.get(symbol.allocation, (symbol.first_call, symbol.last_call))
            lives[symbol.allocation] = (
                min(first, symbol.first_call), max(last, symbol.last_call)
            )  # fmt: skip
    for span in _run(spans):
        used = {region.kind.name: 0 for region in program.regions if region.used}
        for number, (first, last) in lives.items():
            place = program.allocations[number]
            if first <= span.call <= last:
                used[place.region.name] += place.size
        for name, nbytes in used.items():
            yield {
                "name": f"{name} in use", "ph": "C", "pid": _MEMORY, "ts": _us(span.start),
                "args": {"bytes": nbytes},
            }  # fmt: skip


def _us(nanoseconds: int) -> float:
    """Return microseconds of which a reader who cuts off gets the same nanoseconds."""
    quotient = nanoseconds / _NS_PER_US
    exact = int(quotient * _NS_PER_US) == nanoseconds
    return quotient if exact else math.nextafter(quotient, math.inf)
