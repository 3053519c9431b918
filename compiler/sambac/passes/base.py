"""What every pass is."""

from __future__ import annotations

from typing import ClassVar

import onnx_ir as ir


class Pass(ir.passes.InPlacePass):
    """A rewriting of the graph in place: a frozen dataclass with its options as fields.

    `name` is how dumps, error messages and golden files call it.
    """

    name: ClassVar[str]
