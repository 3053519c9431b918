"""Models from text, typed and shaped."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
import pytest
from onnx import parser

from sambac.passes.legalize.infer_shapes import InferShapes

Parse = Callable[[str], ir.Model]


@pytest.fixture
def parse() -> Parse:
    return _parse


def _parse(text: str) -> ir.Model:
    """Return the model of a graph in ONNX's text form, of opset 23; nodes are called n0, n1."""
    header = '<ir_version: 10, opset_import: ["" : 23]>'
    model = ir.from_proto(parser.parse_model(f"{header}\n{text}"))
    for number, node in enumerate(model.graph):
        node.name = f"n{number}"
    InferShapes()(model)
    return model
