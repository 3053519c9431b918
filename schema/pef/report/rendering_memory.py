"""The parts of a report about memory: its regions, and what lies where."""

from __future__ import annotations

from collections.abc import Iterator

from pef.text import Table, grouped, human_bytes, name_text

from .memory_rows import SymbolRow
from .rows import Report

_REGION_HEADERS = (
    *("region", "used", "capacity", "persistent", "peak live", "used/peak", "bytes/s"),
)
_LARGEST_HEADERS = (*("region", "symbol", "size", "kind", "reason", "cost us", "name"),)
_SPILL_HEADERS = (*("symbol", "bytes", "moved", "us", "us in HBM", "cost us", "region", "name"),)


def memory_parts(report: Report) -> Iterator[tuple[str, Table]]:
    """Yield the title and the lines of each part."""
    yield "Regions (bytes)", _regions(report)
    if report["spills"]:
        count = len(report["spills"])
        title = f"Spills ({count:,}; bytes that a run moves, each time all; time is modelled)"
        yield title, _spills(report)
    yield f"Largest symbols of each region ({len(report['regions'])} regions)", _largest(report)


def _regions(report: Report) -> Table:
    """Return how full each region is, and how fast."""
    rows = [
        (
            row["name"],
            grouped(row["used"]),
            grouped(row["capacity"]),
            grouped(row["persistent"]),
            grouped(row["peak_live"]),
            str(row["ratio"]),
            "-" if row["bandwidth"] is None else f"{row['bandwidth']:,}".removesuffix(".0"),
        )
        for row in report["regions"]
    ]
    shares = {"used": [row["used"] / row["capacity"] for row in report["regions"]]}
    return Table(_REGION_HEADERS, rows, _REGION_HEADERS[1:], ("bytes/s", "persistent"), shares)


def _spills(report: Report) -> Table:
    """Return what each spilled symbol costs."""
    rows = [
        (
            str(row["symbol"]),
            grouped(row["bytes"]),
            grouped(row["moved"]),
            _microseconds(row["us"]),
            _microseconds(row["hbm_us"]),
            _microseconds(row["cost_us"]),
            row["region"],
            name_text(report["symbols"][row["symbol"]]["name"]),
        )
        for row in report["spills"]
    ]
    return Table(_SPILL_HEADERS, rows, _SPILL_HEADERS[:6], ("us in HBM", "us"))


def _largest(report: Report) -> Table:
    """Return the symbols that take most of each region, and why they lie there."""
    rows = [
        (region["name"], *_large(report, report["symbols"][number]))
        for region in report["regions"]
        for number in region["largest"]
    ]
    return Table(_LARGEST_HEADERS, rows, ("symbol", "size", "cost us"), ("cost us", "kind"))


def _large(report: Report, symbol: SymbolRow) -> tuple[str, ...]:
    assert symbol["allocation"] is not None  # it lies in a region
    place = report["allocations"][symbol["allocation"]]
    return (
        str(symbol["id"]),
        human_bytes(symbol["bytes"]),
        symbol["kind"],
        place["reason"].lower(),
        _microseconds(place["cost_us"]),
        name_text(symbol["name"]),
    )


def _microseconds(time: float | None) -> str:
    return "-" if time is None else f"{time:,.3f}"
