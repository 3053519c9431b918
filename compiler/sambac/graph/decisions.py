"""Which of several formulations operators get: what was measured, and what was decided so far.

Both are plain data, keyed by questions. Who decides stands in `ops/gradients/formulations.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import onnx_ir as ir

from pef.text import plural
from sambac.facts import ChosenForm

GUESS, MEASUREMENT = "guess", "measurement"

_FORMULATION = "sambac.formulation"


class Question(NamedTuple):
    """What there is to choose: a formulation of `operator` for numbers and sizes."""

    operator: str
    dtype: str
    sizes: str


@dataclass
class Decision:
    """What was chosen, whether by measurement, and for which operators of the model."""

    formulation: str
    measured: bool
    of: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Decisions:
    """The decisions of one compilation: `measured` is known before, `made` is what came of it."""

    measured: Mapping[Question, str] = field(default_factory=dict)
    made: dict[Question, Decision] = field(default_factory=dict)

    def note(self, question: Question, formulation: str, of: str) -> None:
        """Remember what was chosen for the operator `of`."""
        decision = self.made.setdefault(question, Decision(formulation, question in self.measured))
        decision.of.append(of)

    def choices(self) -> tuple[ChosenForm, ...]:
        """Return what was decided as facts, in the order in which it was."""
        return tuple(
            ChosenForm(
                operator=question.operator,
                sizes=question.sizes,
                dtype=question.dtype,
                formulation=made.formulation,
                by=MEASUREMENT if made.measured else GUESS,
                of=tuple(dict.fromkeys(made.of)),
            )
            for question, made in self.made.items()
        )

    def used(self) -> str:
        """Return how much of what was measured had to be decided."""
        found = len(self.measured.keys() & self.made.keys())
        more = len(self.made) - found
        guessed = f"; {plural(more, 'choice')} by guess" if more else ""
        return f"{found} of {plural(len(self.measured), 'entry', 'entries')} used{guessed}"


def note_formulation(node: ir.Node, name: str) -> None:
    """Let `node` be written so where programs for processors are made."""
    node.metadata_props[_FORMULATION] = name


def noted_formulation(node: ir.Node) -> str | None:
    """Return the formulation that is noted on `node`, if any is."""
    return node.metadata_props.get(_FORMULATION)
