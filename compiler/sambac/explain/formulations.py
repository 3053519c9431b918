"""Which of several formulations an operator is part of, and by what that was chosen."""

from __future__ import annotations

from collections.abc import Iterator

from pef.report.formulations import take_formulations
from sambac.graph.decisions import GUESS
from sambac.reconstruct.rebuilt import Rebuilt

from .cuts import option
from .facts import Fact, quoted

_TOPIC = "How it is written"


def formulation_facts(rebuilt: Rebuilt, op: str) -> Iterator[Fact]:
    """Yield what was chosen for the operator of the model that `op` is, or is a gradient of."""
    for row in take_formulations({"formulations": option(rebuilt, "formulations")}):
        found = [name for name in row["of"] if op == name or op.startswith(f"grad/{name}/")]
        if found:
            guess = row["by"] == GUESS
            by = "a guess of costs chose" if guess else "a measurement (tuning) chose"
            yield Fact(
                _TOPIC,
                f"For the {row['operator']} of {quoted(found[0])} ({row['sizes']}) {by} "
                f"{quoted(row['formulation'])}.",
                {"operator": row["operator"], "formulation": row["formulation"], "by": row["by"]},
            )
