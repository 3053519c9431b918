"""`sambac scale`: steps of replicas that train together, as a table, JSON and a plot."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import pef
from pef.errors import PefError
from pef.files import write_text
from pef.program import Program
from pef.text import Table, human_bytes, human_time, name_text, plural, sentence_lines, whole_of
from sambac.errors import CompileError
from sambac.replicas import (
    MODES,
    Link,
    ScaledStep,
    link_of,
    parse_bandwidth,
    parse_seconds,
    plot,
    scale,
    training_graph,
)

from .shell import Wrong, prose_width
from .targets import check_target

_MOST = 1 << 20
_TERMS = (
    "efficiency: time of one replica alone / time in the best mode; hidden: part of the time of "
    "the network in which sections run, in that mode."
)
_DEFAULT = (1, 2, 4, 8, 16, 32, 64)


def replica_counts(text: str | None) -> tuple[int, ...]:
    """Return the numbers in `1,2,4`, ascending. Raises `Wrong` for anything else."""
    if text is None:
        return _DEFAULT
    words = [word.strip() for word in text.split(",")]
    counts = [whole_of(word) or 0 for word in words]
    if not all(1 <= count <= _MOST for count in counts):
        raise Wrong(
            f"--replicas: {text!r}; give numbers from 1 to {_MOST:,} with commas between, such as "
            "1,2,4,8."
        )
    return tuple(sorted(set(counts)))


def scaled_lines(
    path: Path,
    counts: Sequence[int],
    graph: str | None,
    link: tuple[str | None, str | None],
    *,
    picture: Path | None = None,
    as_json: bool = False,
) -> Iterator[str]:
    """Yield steps of so many replicas of the PEF at `path`, and write the plot if one is wanted.

    `link` is its bandwidth and its latency as the user spelled them. Raises `PefError` for a file
    that cannot be read, `CompileError` for one whose gradients are not reduced or whose link is not
    known.
    """
    if picture is not None:
        check_target(picture, path)
        if picture.suffix != ".svg":
            raise Wrong(f"{picture}: the plot is an SVG; give a name that ends with .svg.")
    bandwidth, latency = link
    said = (
        None if bandwidth is None else parse_bandwidth(bandwidth),
        None if latency is None else parse_seconds(latency),
    )
    try:
        with pef.open(path) as file:
            program = file.program
        chosen = training_graph(program, graph)
        joined = link_of(program, *said)
        steps = scale(program, chosen, counts, joined)
    except CompileError as error:
        raise PefError(f"{path}: {error}") from error
    title = program.producer.source or path.name
    if picture is not None:
        write_text(picture, plot(steps, f"{title} on {program.arch}"))
    if as_json:
        yield json.dumps(_data(joined, steps), indent=1)
        return
    yield from _lines(program, title, joined, steps)
    if picture is not None:
        yield f"plot: {picture}"


def _data(link: Link, steps: Sequence[ScaledStep]) -> dict[str, object]:
    rows = [
        {**asdict(s), "waited": s.waited, "hidden": s.hidden, "efficiency": s.efficiency}
        for s in steps
    ]
    return {"link": asdict(link), "steps": rows}


def _lines(program: Program, title: str, link: Link, steps: Sequence[ScaledStep]) -> Iterator[str]:
    first = steps[0]
    gradients = [
        program.symbols[index]
        for section in program.sections
        if section.type is pef.SectionType.REDUCE
        for index in section.inputs
    ]
    width = prose_width()
    yield from sentence_lines(
        f"{name_text(title)} on {name_text(program.arch)}: a step of one replica takes "
        f"{_time(first.sections)} (modelled). It reduces {plural(len(gradients), 'gradient')}, "
        f"{human_bytes(sum(symbol.size for symbol in gradients))}, over a link of "
        f"{link.bandwidth / 1e9:.4g} GB/s and {_time(link.latency)}.",
        width,
    )
    yield ""
    headers = ["replicas", "network", *MODES, "efficiency", "hidden"]
    by_count: dict[int, list[ScaledStep]] = {}
    for step in steps:
        by_count.setdefault(step.replicas, []).append(step)
    rows = [_row(count, found) for count, found in by_count.items()]
    yield from Table(headers, rows, headers).lines()
    yield ""
    yield from sentence_lines(_TERMS, width)


def _row(count: int, steps: Sequence[ScaledStep]) -> tuple[str, ...]:
    best = min(steps, key=lambda step: step.seconds)
    return (
        f"{count:,}",
        _time(best.network),
        *(_time(step.seconds) for step in steps),
        f"{best.efficiency:.1%}",
        f"{best.hidden:.0%}" if best.network else "-",
    )


def _time(seconds: float) -> str:
    return human_time(1e6 * seconds) if seconds else "0"
