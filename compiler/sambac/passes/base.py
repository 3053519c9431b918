"""What every pass is."""

from __future__ import annotations

from typing import ClassVar

import onnx_ir as ir

# What passes concern besides operators by their type; `runner` asks a model for it.
FUNCTIONS = "functions of the model"
SUBGRAPHS = "branches and bodies of loops"
CONSTANT_OUTPUTS = "outputs that are constants"
OUT_OF_ORDER = "operators before what they read"
WITHOUT_KERNEL = "operators without a kernel, and values without a type"
WITHOUT_ELEMENTS = "values without elements"
MAYBE_WITHOUT_ELEMENTS = "values without elements, or of open sizes"
FEW_BITS = "numbers of four bits, and floating-point numbers of eight"


class Pass(ir.passes.InPlacePass):
    """A rewriting of the graph in place: a frozen dataclass with its options as fields.

    `name` is how dumps, error messages and golden files call it. `operators` are the types of
    operators that it concerns, or what else it does, such as `SUBGRAPHS`: on a model with none of
    that it would change nothing, and is not run. None means any model.
    """

    name: ClassVar[str]
    operators: ClassVar[frozenset[str] | None] = None
