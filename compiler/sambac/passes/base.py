"""What every pass is."""

from __future__ import annotations

from typing import ClassVar

import onnx_ir as ir

FUNCTIONS = "functions of the model"
"""What stands among the operators of a model that has functions of its own."""

SUBGRAPHS = "subgraphs"
"""What stands among the operators of a model that has branches or bodies of loops."""

CONSTANT_OUTPUTS = "outputs that are constants"
"""What stands there where an output of the model is an initializer."""

WITHOUT_KERNEL = "operators without a kernel"
"""What a pass concerns that helps or refuses operators that onnxruntime cannot run as they are.

Values whose type is unknown count as such. It stands in no set of operators: whether there are any
is asked where a pass wants to know, once types are inferred.
"""


class Pass(ir.passes.InPlacePass):
    """A rewriting of the graph in place: a frozen dataclass with its options as fields.

    `name` is how dumps, error messages and golden files call it. `operators` are the types of
    operators that it concerns, and what stands for others of a kind (`FUNCTIONS`, `SUBGRAPHS`,
    `CONSTANT_OUTPUTS`, `WITHOUT_KERNEL`): on a model with none of them it would change nothing, and
    is not run. None means any model.
    """

    name: ClassVar[str]
    operators: ClassVar[frozenset[str] | None] = None
