"""Sections: what running one costs, linked and unlinked."""

from __future__ import annotations

import statistics

import sambac
from benchmarks import zoo
from benchmarks.contestants import THREADS, race, ratio
from benchmarks.report import Cell, Report, bars

SECTIONS = 100
COMMAND_LIMIT, LIBRARY_LIMIT, LINKED_LIMIT = 5.0, 10.0, 1.03


def run() -> Report:
    """Race the same hundred tiny operators as a hundred sections and as one."""
    files = zoo.make("tiny", zoo.TINY)
    many = files.pef(sambac.CompileOptions(level="O0"))
    one = files.pef(sambac.CompileOptions(level="O3", sections=1))
    engines = {
        "one section": ("command", one),
        "linked": ("command", many),
        "unlinked, command": ("command-unlinked", many),
        "unlinked, library": ("library-unlinked", many),
        "plain onnxruntime": ("plain", files.model),
    }
    times = race(engines, files.inputs)
    medians = {name: statistics.median(values) for name, values in times.items()}
    rows: list[list[Cell]] = [
        [name, 1e6 * seconds, 1e6 * seconds / SECTIONS, ratio(times[name], times["one section"])]
        for name, seconds in medians.items()
    ]
    each = {name: 1e6 * seconds / SECTIONS for name, seconds in medians.items()}
    linked = ratio(times["linked"], times["one section"])
    return Report(
        name="sections",
        question="What does a section cost?",
        method=(
            f"{SECTIONS} operators on 16 numbers each, at O0 a section each; {THREADS} threads, "
            "each way in a process of its own, in turns. The times include the operators."
        ),
        columns=["way", "run, us", "per section, us", "ratio to one section"],
        rows=rows,
        summary=[
            (
                f"Unlinked, a section costs {each['unlinked, command']:.2f} us in the command "
                f"(limit {COMMAND_LIMIT:g}) and {each['unlinked, library']:.2f} us as a library "
                f"(limit {LIBRARY_LIMIT:g})."
            ),
            (
                f"Linked, {SECTIONS} sections take {linked:.3f} of the time of one "
                f"(limit {LINKED_LIMIT})."
            ),
        ],
        plot=bars(
            list(each),
            list(each.values()),
            title=f"{SECTIONS} tiny sections: us per section",
            limit=COMMAND_LIMIT,
        ),
    )
