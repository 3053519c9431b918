"""What was compiled, what a run of it costs, and how the modelled time of sections comes about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from pef.text import (
    Table,
    grouped,
    human_bytes,
    human_count,
    human_quantity,
    human_time,
    label_text,
    name_text,
    plural,
)

from .rows import GraphRow, Report, TermsRow, Totals

_SLOWEST = 3
_WEIGHTS = ("weights", "weights, read and written")  # in programs for inference, and that train
_STEP_AND_EVALUATION = 2  # graphs of a model that trains alone


class Whole(NamedTuple):
    """What is run at once: its name for people ("step", "run of all graphs"), cost and calls.

    `calls` are the ids of the sections that it calls, in order.
    """

    word: str
    costs: GraphRow | Totals
    calls: list[int]


def whole(report: Report) -> Whole:
    """Return what the time of a program is told of: the step that it trains by, else all graphs.

    The evaluation beside a step is no part of it, nor is what other models of the program do.
    """
    graphs, training = report["graphs"], report["training"]
    if training is None or not training["steps"]:
        word = "run" if len(graphs) == 1 else "run of all graphs"
        return Whole(word, report["totals"], report["schedule"])
    name = training["steps"][0]
    step = next(graph for graph in graphs if graph["name"] == name)
    end = step["first_call"] + step["calls"]
    word = "step" if len(graphs) <= _STEP_AND_EVALUATION else f"step of {name_text(name)}"
    return Whole(word, step, report["schedule"][step["first_call"] : end])


def summary(report: Report) -> str:
    """Return the paragraph, as one line."""
    totals, options = report["totals"], report["options"]
    one, once, calls = whole(report)
    model = name_text(report["source"]["name"]) if report["source"]["name"] else "A model"
    moved = once["bytes_in"] + once["bytes_out"] + once["bytes_weights"]
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in totals["sections_by_type"].items())
    where = "; ".join(
        f"{row['name']} holds {human_bytes(row['used'])} of {human_bytes(row['capacity'])}"
        for row in report["regions"]
        if row["used"]
    )
    return " ".join(
        (
            f"{model} compiled for {report['arch']} at {options.get('level', '?')}",
            f"by {report['producer']['tool']} {report['producer']['version']}:",
            f"{plural(totals['operators'], 'operator')}",
            f"in {plural(totals['groups'], 'fusion group')}",
            f"and {plural(totals['sections'], 'section')} ({kinds or 'none'}),",
            f"{plural(once['calls'], 'call')} a {one}.",
            f"The file holds {human_bytes(totals['weight_bytes'])} ({totals['weight_bytes']:,}",
            f"bytes) of data for {plural(totals['weights'], 'weight')}"
            + (f"; {len(report['absent']):,} absent." if report["absent"] else "."),
            f"One {one} is modelled to take {human_time(once['latency_us'])}",
            f"for {human_count(once['flops'])}FLOP and to move {human_bytes(moved)}",
            f"to and from memory, {human_bytes(_weights(report, calls))} of it",
            f"{_WEIGHTS[report['training'] is not None]}{_slowest(report, calls)}.",
            f"{where}." if where else "No memory is planned.",
        )
    )


def _weights(report: Report, calls: list[int]) -> int:
    """Return the bytes of weights that cross the borders of sections, whether they last or not."""
    kinds = {"WEIGHT", "BUFFER"}
    sizes = [row["device_bytes"] if row["kind"] in kinds else 0 for row in report["symbols"]]
    sections = (report["sections"][number] for number in calls)
    return sum(
        sizes[symbol]
        for row in sections
        for symbol in (*row["inputs"], *row["weights"], *row["outputs"])
    )


def _slowest(report: Report, calls: list[int]) -> str:
    """Name the sections that take most of the modelled time of `calls`, where there are many."""
    times = {
        number: count * report["sections"][number]["latency_us"]
        for number, count in Counter(calls).items()
    }
    total = sum(times.values())
    if len(times) <= _SLOWEST or not total:
        return ""
    ordered = sorted(times, key=lambda number: (-times[number], number))[:_SLOWEST]
    share = sum(times[number] for number in ordered) / total
    ids = ", ".join(map(str, ordered))
    return f"; sections {ids} are the slowest, together {share:.1%} of the time"


TERMS = ("launch", "fill", "held", "compute", "streams", "link")
_SUM = "launch + fill + held + max(compute, streams) + link"


def cost_parts(report: Report) -> Iterator[tuple[str, Table]]:
    """Yield the title and the body of each part that there is."""
    yield from time_parts(report)
    if operators := list(_operators(report)):
        headers = ("section", "node", "PCUs", "FLOP")
        yield (
            f"Operators that compute ({len(operators):,}; share of units and work, modelled)",
            Table(headers, operators, headers),
        )


def time_parts(report: Report) -> Iterator[tuple[str, Table]]:
    """Yield what the time of each section is made of, where the file says so."""
    rows = [(row["id"], row["terms"]) for row in report["sections"] if row["terms"] is not None]
    if rows:
        table = Table(("section", *TERMS), [_terms(*row) for row in rows], ("section", *TERMS))
        yield f"Time of sections ({len(rows):,}; modelled, us: {_SUM})", table


def device_parts(report: Report) -> Iterator[tuple[str, Table]]:
    """Yield the numbers that estimates took of the device, if the file has them."""
    rows = [
        (
            name_text(row["name"]),
            _stated(row["value"]),
            label_text(row["unit"]),
            human_quantity(row["value"], row["unit"]),
            *(label_text(row[word]) for word in ("origin", "source")),
        )
        for row in report["device"]
    ]
    if rows:
        headers = ("number", "value", "unit", "about", "origin", "source")
        yield (
            f"Device ({len(rows)} numbers that estimates took)",
            Table(headers, rows, ("value", "about"), ("about", "origin", "source")),
        )


def _stated(value: float) -> str:
    return grouped(int(value)) if value.is_integer() else repr(value)


def _terms(section: int, terms: TermsRow) -> tuple[str, ...]:
    times = (terms["launch"], terms["fill"], terms["held"], terms["compute"], terms["streams"])
    return (str(section), *(f"{time:,.3f}" for time in (*times, terms["link"])))


def _operators(report: Report) -> Iterator[tuple[str, ...]]:
    for section in report["sections"]:
        for group in section["groups"]:
            for op in group["operators"]:
                if op["flops"] or op["pcus"]:
                    where = (str(section["id"]), str(op["node"]))
                    yield (*where, grouped(op["pcus"]), grouped(op["flops"]))
