"""What a program is in a few lines: where its files are, what it trains, what memory that takes."""

from __future__ import annotations

from collections import Counter
from itertools import zip_longest
from pathlib import Path

from pef.report import GraphRow, Report, Training, whole
from pef.text import (
    WIDTH,
    human_bytes,
    human_count,
    human_time,
    name_text,
    plural,
    sentence_lines,
)

_INDENT = 12


def compiled(facts: Report, target: Path, log: Path) -> list[str]:
    """Return the lines for a program that has been written to `target` with its `log`."""
    size = facts["file"]["bytes"] if facts["file"] else 0
    totals = facts["totals"]
    sections, operators = plural(totals["sections"], "section"), plural(totals["operators"], "op")
    warned = facts["warnings"]
    note = f"; {plural(len(warned), 'warning')}" if warned else ""
    return [
        f"{target}: {human_bytes(size)}, {sections}, {operators}, {modelled(facts)} (modelled)",
        *training_lines(facts),
        f"{log}: sections, memory, symbols{note}",
    ]


def modelled(facts: Report) -> str:
    """Return how long a run, or a step, is modelled to take."""
    one, costs, _ = whole(facts)
    return f"{human_time(costs['latency_us'])} a {one}"


def training_lines(facts: Report) -> list[str]:
    """Return what a program minimises and trains, its sections by type, its memory by kind."""
    training = facts["training"]
    if training is None:
        return []
    losses = ", ".join(map(name_text, training["losses"]))
    words = (
        ("minimises", losses or "what gradients are given for"),
        ("trains", _parameters(training)),
        ("sections", "; ".join(_sections(facts, graph) for graph in facts["graphs"])),
        ("memory", _memory(facts, training)),
    )
    return [line for word, text in words for line in _indented(word, text)]


def _indented(word: str, text: str) -> list[str]:
    """Return `text` beside a word, broken into lines that fit a terminal."""
    lines = sentence_lines(text, WIDTH - _INDENT)
    first = [f"  {word}"]
    return [f"{start:{_INDENT}}{line}" for start, line in zip_longest(first, lines, fillvalue="")]


def _parameters(training: Training) -> str:
    """Return how many parameters are trained and how many are not, and their elements."""
    rows = {row["kind"]: row for row in training["memory"]}
    trained, frozen = rows["parameters"], rows["frozen parameters"]
    text = f"{plural(trained['tensors'], 'parameter')} ({_elements(trained['elements'])})"
    if frozen["tensors"]:
        text += f", {frozen['tensors']:,} frozen ({_elements(frozen['elements'])})"
    return text


def _elements(count: int) -> str:
    return f"{human_count(count).strip()} elements"


def _sections(facts: Report, graph: GraphRow) -> str:
    """Return how many sections of each type a graph calls, in the order of its schedule."""
    calls = facts["schedule"][graph["first_call"] : graph["first_call"] + graph["calls"]]
    counts = Counter(facts["sections"][section]["type"] for section in calls)
    shown = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    return f"{graph['name']} {shown or 'none'}"


def _memory(facts: Report, training: Training) -> str:
    """Return the planned bytes, and those of each kind of tensor, which may share addresses."""
    used = sum(region["used"] for region in facts["regions"])
    kinds = [
        f"{row['kind']} {human_bytes(row['bytes'])}" for row in training["memory"] if row["bytes"]
    ]
    return f"{human_bytes(used)}: {', '.join(kinds)}"
