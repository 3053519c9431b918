"""The parts of a report's text that say how the modelled time of sections comes about."""

from __future__ import annotations

from collections.abc import Iterator

from pef.text import Table, grouped, label_text, name_text

from .rows import Report, TermsRow

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
            repr(row["value"]),
            *(label_text(row[word]) for word in ("unit", "origin", "source")),
        )
        for row in report["device"]
    ]
    if rows:
        headers = ("number", "value", "unit", "origin", "source")
        yield f"Device ({len(rows)} numbers that estimates took)", Table(headers, rows, ("value",))


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
