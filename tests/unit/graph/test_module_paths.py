"""Which module an operator comes from."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from sambac.graph.module_paths import MODULE_SCOPES, module_of


@pytest.mark.parametrize(
    ("name", "scopes", "module"),
    [
        ("/layer1/conv/Conv", None, "layer1.conv"),
        ("/Relu", None, ""),
        ("Conv_7", None, ""),
        ("n", "['', 'layer1', 'layer1.conv', 'conv2d']", "layer1.conv"),
        ("n", "['', 'add']", ""),
        ("n", """["it's", 'add']""", "it's"),
        ("/layer1/Conv", "damaged ['", ""),
    ],
)
def test_the_module_of_an_operator(name: str, scopes: str | None, module: str) -> None:
    node = ir.node("Conv", [], name=name)
    if scopes is not None:
        node.metadata_props[MODULE_SCOPES] = scopes
    assert module_of(node) == module
