"""A report on a screen: no wider than it is, and nothing is lost but what it says it leaves out."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import sambac
from pef.report import Report, parts, report
from pef.text import Table
from samba_cli import terminal
from sambac import CompileOptions


@pytest.fixture(scope="module")
def chain() -> Report:
    """The report of a chain of operators with long names, each a section."""
    names = [f"encoder.layers.{n}.feed_forward.projection" for n in range(6)]
    nodes = [
        helper.make_node("Gemm", [f"h{n}", f"{name}.weight"], [f"h{n + 1}"], name=name)
        for n, name in enumerate(names)
    ]
    weights = [
        numpy_helper.from_array(np.full((4, 4), n, dtype="f"), f"{name}.weight")
        for n, name in enumerate(names)
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info("h0", 1, [4, 4])], [info("h6", 1, [4, 4])], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return report(sambac.compile(model, CompileOptions(level="O0")))


@pytest.fixture
def drawn(chain: Report) -> Callable[[int], str]:
    def draw(width: int) -> str:
        return re.sub(r"\x1b\[[0-9;]*m", "", terminal.drawn(chain, parts(chain), width))

    return draw


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_nothing_is_wider_than_the_screen(drawn: Callable[[int], str], width: int) -> None:
    assert max(map(len, drawn(width).splitlines())) <= width


@pytest.mark.parametrize("width", [80, 120, 200])
def test_all_cells_are_shown_but_those_of_columns_that_are_left_out(
    chain: Report, drawn: Callable[[int], str], width: int
) -> None:
    together = re.sub(r"\s+", "", drawn(width))
    for title, body in parts(chain):
        shown = re.sub(r"\s+", "", title)
        assert shown in together
        if not isinstance(body, Table):
            continue
        said = re.match(r"\(noroomfor([^)]*)\)", together.partition(shown)[2])
        gone = said[1].split(",") if said else []
        for at, header in enumerate(body.headers):
            missing = header.replace(" ", "") in gone
            assert not missing or header in body.lesser
            cells = [] if missing else [row[at] for row in body.rows if len(row[at]) <= 30]
            assert all(re.sub(r"\s+", "", cell) in together for cell in cells)


def test_a_wide_screen_leaves_out_nothing(drawn: Callable[[int], str]) -> None:
    assert "no room for" in drawn(80)
    assert "no room for" not in drawn(200)
