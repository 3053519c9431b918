"""The parts of a report about memory and what is stored in it, or in the file.

Regions and what lies where; programs, allocations, symbols and their content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pef.text import (
    Table,
    grouped,
    human_bytes,
    human_size,
    label_text,
    name_ranges,
    name_text,
    shape_text,
)

from .memory_rows import DataRow, SymbolRow
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


_ALLOCATION_HEADERS = (*("id", "region", "address", "bytes", "marks", "reason", "cost us", "name"),)
_SYMBOL_HEADERS = (
    *("id", "kind", "lasts", "dtype", "region", "address", "size", "bytes", "calls"),
    *("alloc", "of", "pack", "data", "shape", "name"),
)


def storage_parts(report: Report) -> Iterator[tuple[str, Table]]:
    """Yield the title and the body of each part."""
    yield f"Segments of the file ({len(report['segments'])})", _segments(report)
    yield (
        f"Programs ({len(report['programs']):,}; their formal names, in the order of the symbols)",
        _programs(report),
    )
    yield f"Allocations ({len(report['allocations']):,})", _allocations(report)
    if derived := [row for row in report["symbols"] if row["origins"]]:
        yield (
            f"Derived weights ({len(derived):,}; the model's tensors behind them)",
            _derived(derived),
        )
    yield from symbol_parts(report)


def symbol_parts(report: Report) -> Iterator[tuple[str, Table]]:
    """Yield the part that tells of symbols, for a report that may have only some of them."""
    yield (
        f"Symbols ({len(report['symbols']):,}; calls they live in, where their data lie)",
        _symbols(report),
    )


def _segments(report: Report) -> Table:
    rows = [
        (human_bytes(row["bytes"]), grouped(row["bytes"]), name_text(row["name"]))
        for row in report["segments"]
    ]
    return Table(("size", "bytes", "name"), rows, ("size", "bytes"))


def _programs(report: Report) -> Table:
    rows = [
        (
            str(row["id"]),
            grouped(row["graph"]["bytes"]),
            f"{name_text(row['graph']['segment'])}+{row['graph']['offset']:#x}",
            row["call_form"],
            _marks(row["requires"]),
            _formal(row["inputs"], row["weights"], row["outputs"]),
        )
        for row in report["programs"]
    ]
    headers = (
        "program",
        "bytes",
        "graph",
        "called",
        "requires",
        "inputs + fixed weights -> outputs",
    )
    return Table(headers, rows, ("program", "bytes"), ("graph", "bytes", "called"))


def _formal(inputs: Sequence[str], weights: Sequence[str], outputs: Sequence[str]) -> str:
    words = [*name_ranges(inputs), *(["+", *name_ranges(weights)] if weights else [])]
    return " ".join([*words, "->", *name_ranges(outputs)])


def _allocations(report: Report) -> Table:
    rows = [
        (
            str(row["id"]),
            row["region"],
            f"{row['address']:#x}",
            grouped(row["bytes"]),
            _marks(mark for mark, held in _held(row["spilled"], row["shared"]) if held),
            row["reason"].lower(),
            "-" if row["cost_us"] is None else f"{row['cost_us']:,.3f}",
            label_text(row["name"]),
        )
        for row in report["allocations"]
    ]
    return Table(_ALLOCATION_HEADERS, rows, ("id", "address", "bytes", "cost us"))


def _held(spilled: bool, shared: bool) -> tuple[tuple[str, bool], ...]:
    return ("spilled", spilled), ("shared", shared)


def _marks(words: Iterable[str]) -> str:
    return ",".join(map(name_text, words)) or "-"


def _derived(symbols: Iterable[SymbolRow]) -> Table:
    rows = [
        (str(row["id"]), name_text(row["name"]), " ".join(map(name_text, row["origins"])))
        for row in symbols
    ]
    return Table(("symbol", "name", "computed from"), rows, ("symbol",))


def _symbols(report: Report) -> Table:
    end = report["totals"]["calls"]
    rows = [_symbol(row, end) for row in report["symbols"]]
    right = ("id", "address", "size", "bytes", "alloc", "of", "pack")
    lesser = ("alloc", "bytes", "pack", "of", "data", "address", "lasts", "calls", "dtype")
    return Table(_SYMBOL_HEADERS, rows, right, lesser)


def _symbol(row: SymbolRow, end: int) -> tuple[str, ...]:
    first = "start" if row["first_call"] < 0 else str(row["first_call"])
    last = "end" if row["last_call"] == end else str(row["last_call"])
    return (
        str(row["id"]),
        row["kind"],
        row["duration"].lower(),
        name_text("/".join(filter(None, (row["declared"], row["dtype"])))),
        row["region"] or "-",
        "-" if row["address"] is None else f"{row['address']:#x}",
        human_size(row["bytes"], row["shape"]),
        grouped(row["bytes"]),
        f"{first}..{last}",
        _index(row["allocation"]),
        _index(row["parameter"]),
        _index(row["pack"]),
        _data(row["data"], row["bytes"]),
        shape_text(row["shape"]),
        name_text(row["name"]),
    )


def _index(number: int | None) -> str:
    return "-" if number is None else str(number)


def _data(data: DataRow | None, size: int) -> str:
    """Return segment and offset, and how many bytes if they are not those of the symbol."""
    if data is None:
        return "-"
    place = f"{name_text(data['segment'])}+{data['offset']:#x}"
    return place if data["bytes"] == size else f"{place}:{data['bytes']}"
