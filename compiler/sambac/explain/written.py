"""What became of operators and values that a program has no longer under their own names."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pef.program import Program
from pef.report.recorded import take_formulations
from pef.text import plural
from pef.wording import listed

_MOST = 3


def written_as(program: Program, name: str) -> str:
    """Return in words which formulations were chosen for the operator `name`; "" if none."""
    chosen = list(dict.fromkeys(_chosen(program, name)))
    if not chosen:
        return ""
    return (
        f"{name!r} is written as other operators: of it were chosen {listed(chosen, _MOST, ', ')}"
    )


def called_after(program: Program, name: str) -> str:
    """Return in words which operators are called after `name`, as `h_add` is; "" if none is."""
    parts = [
        repr(operator.name)
        for section in program.sections
        for group in section.groups
        for operator in group.operators
        if name and operator.name.startswith((f"{name}_", f"{name}/"))
    ]
    return (
        f"; called after it: {plural(len(parts), 'operator')}, {listed(parts, _MOST, ', ')}"
        if parts
        else ""
    )


def _chosen(program: Program, name: str) -> Iterator[str]:
    options: dict[str, object] = json.loads(program.producer.options or "{}")
    for row in take_formulations(options):
        if name in row["of"]:
            yield f"{row['formulation']!r} for the {row['operator']} ({row['sizes']})"
