"""How the time of sections comes about, read from a log."""

from __future__ import annotations

from log_cells import label, number, table, unquoted


def costs(
    parts: dict[str, list[str]], groups: dict[str, list[dict[str, object]]]
) -> dict[str, dict[str, float]]:
    """Add their work and units to the operators of `groups`; return the terms of each section."""
    work = {
        (row["section"], int(row["node"])): row
        for row in table(parts.get("Operators that compute", []))
    }
    for section, members in groups.items():
        for op in (op for group in members for op in group["operators"]):  # type: ignore[attr-defined]
            row = work.get((section, op["node"]), {"FLOP": "0", "PCUs": "0"})
            op |= {"flops": number(row["FLOP"]), "pcus": number(row["PCUs"])}
    return {
        row.pop("section"): {key: float(cell.replace(",", "")) for key, cell in row.items()}
        for row in table(parts.get("Time of sections", []))
    }


def device(parts: dict[str, list[str]]) -> list[dict[str, object]]:
    """Return the numbers of the device."""
    return [
        {
            "name": unquoted(row["number"]),
            "value": float(row["value"].replace(",", "")),
            **{word: label(row[word]) for word in ("unit", "origin", "source")},
        }
        for row in table(parts.get("Device", []))
    ]


def spill(row: dict[str, str]) -> dict[str, object]:
    """Return what one spilled symbol costs."""
    return {
        **{key: number(row[key]) for key in ("symbol", "bytes", "moved")},
        "region": row["region"],
        "us": time(row["us"]),
        "hbm_us": time(row["us in HBM"]),
        "cost_us": time(row["cost us"]),
    }


def time(cell: str) -> float | None:
    """Return microseconds, None for a dash."""
    return None if cell == "-" else float(cell.replace(",", ""))
