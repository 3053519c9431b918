"""What every pass is."""

from __future__ import annotations

from typing import ClassVar

import onnx_ir as ir

FUNCTIONS = "functions of the model"
"""What stands among the operators of a model that has functions of its own."""

SUBGRAPHS = "subgraphs"
"""What stands among the operators of a model that has branches or bodies of loops."""


class Pass(ir.passes.InPlacePass):
    """A rewriting of the graph in place: a frozen dataclass with its options as fields.

    `name` is how dumps, error messages and golden files call it. `operators` are the types of
    operators, `FUNCTIONS` and `SUBGRAPHS`, that it concerns: on a model with none of them it would
    change nothing, and is not run. None means any model.
    """

    name: ClassVar[str]
    operators: ClassVar[frozenset[str] | None] = None
