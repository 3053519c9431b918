"""What lies in DDR because HBM is full, and what that costs."""

from __future__ import annotations

from collections import Counter

from pef.program import Program, RegionKind

from .rows import SpillRow


def spills(program: Program) -> list[SpillRow]:
    """Return a row for each spilled symbol, with the bytes that one run of the schedule moves.

    Times are the moved bytes over the bandwidth that estimates charge, None where it is not known.
    """
    spilled = [
        (number, symbol, program.allocations[symbol.allocation].region)
        for number, symbol in enumerate(program.symbols)
        if symbol.allocation is not None and program.allocations[symbol.allocation].spilled
    ]
    if not spilled:
        return []
    called = (program.sections[number] for number in program.schedule)
    accesses = Counter(
        symbol
        for section in called
        for symbol in (*section.inputs, *section.weights, *section.outputs)
    )
    speeds = {region.kind: region.bandwidth for region in program.regions}
    return [
        SpillRow(
            symbol=number,
            region=region.name,
            bytes=symbol.size,
            moved=(moved := symbol.size * accesses[number]),
            us=_time(moved, speeds[region]),
            hbm_us=_time(moved, speeds[RegionKind.HBM]),
        )
        for number, symbol, region in spilled
    ]


def _time(moved: int, speed: float) -> float | None:
    """Return microseconds, rounded to nanoseconds."""
    return round(1e6 * moved / speed, 3) if speed else None
