"""Models as text, legalized."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
import pytest

from sambac.passes.legalize.check_legal import check_legal
from sambac.passes.pipelines import LEGALIZE


@pytest.fixture
def legalized() -> Callable[[str], ir.Model]:
    """Return a function that reads ONNX text and legalizes it."""

    def legalize(text: str) -> ir.Model:
        model = ir.from_onnx_text(text)
        for step in LEGALIZE:
            step(model)
        assert check_legal(model) == []
        return model

    return legalize
