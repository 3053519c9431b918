"""Which of several formulations an operator or its gradients have, and by what that was chosen."""

from __future__ import annotations

from collections.abc import Iterator

from pef.report.formulations import take_formulations
from sambac.graph.decisions import GUESS
from sambac.reconstruct.rebuilt import Rebuilt

from .cuts import option
from .facts import Fact, quoted

_TOPIC = "How it is written"


def formulation_facts(rebuilt: Rebuilt, op: str) -> Iterator[Fact]:
    """Yield what was chosen for the operator `op` of the model, and for its gradients."""
    for row in take_formulations({"formulations": option(rebuilt, "formulations")}):
        if op in row["of"]:
            guess = row["by"] == GUESS
            by = "a guess of costs chose" if guess else "a measurement (tuning) chose"
            yield Fact(
                _TOPIC,
                f"For the {row['operator']} of {quoted(op)} ({row['sizes']}) {by} "
                f"{quoted(row['formulation'])}.",
                {"operator": row["operator"], "formulation": row["formulation"], "by": row["by"]},
            )
