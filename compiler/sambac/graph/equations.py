"""The equation of an Einsum: letters for the axes of each operand, and for those of the result.

"bij, bjk -> bik"    terms ("bij", "bjk"), result "bik"
"bij, bjk"           the same terms; the result is implied: letters of one term, in order
"...j, ...j -> ..."  an ellipsis stands for as many axes as its operand has beside the letters
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from .nodes import text_attribute

ELLIPSIS = "..."


@dataclass(frozen=True, slots=True)
class Equation:
    """An equation without blanks; `result` is None where it is implied."""

    terms: Sequence[str]
    result: str | None

    def __str__(self) -> str:
        """Return the equation as the attribute spells it."""
        terms = ",".join(self.terms)
        return terms if self.result is None else f"{terms}->{self.result}"


def equation_of(node: ir.Node) -> Equation:
    """Return the equation of an Einsum."""
    text = text_attribute(node, "equation", "").replace(" ", "")
    terms, arrow, result = text.partition("->")
    return Equation(terms.split(","), result if arrow else None)
