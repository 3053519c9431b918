"""Open sizes of results that inference cannot follow are called what the model calls them."""

from __future__ import annotations

import onnx.parser
import pytest

import sambac

_MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
places (float[rows, 4] x, float[rows, 4] y) => (int64[DECLARED] found, float[other, 4] sum) {
    found = NonZero (x)
    sum = Add (x, y)
}
"""


@pytest.mark.parametrize(
    ("declared", "named"),
    [("2, here", "here"), ("2, rows", "rows"), ("axes, here", "here"), ("2, 7", None), ("2", None)],
)
def test_names_of_results(declared: str, named: str | None) -> None:
    model = onnx.parser.parse_model(_MODEL.replace("DECLARED", declared))
    program = sambac.compile(model)
    found, added = (program.symbols[port.symbol].shape for port in program.graphs[0].outputs)
    assert added == ("rows", 4)
    assert found is not None
    assert found[0] == 2
    assert found[1] == named if named else found[1] not in ("here", "rows", 7)
