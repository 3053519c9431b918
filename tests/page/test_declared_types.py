"""What kernels of the host give in more bits than the model: the page says what a device moves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from browser import Browser
from onnx import TensorProto, helper

import pef
import sambac
from pef.report import page, report
from sambac import CompileOptions

SIDE = 512
MOVED, KEPT = "512 KiB", "1.00 MiB"  # a matrix in BF16, and as kernels of the host give it


def model() -> onnx.ModelProto:
    """Return three operators on matrices in BF16."""
    nodes = [
        helper.make_node("Add", ["x", "y"], ["sum"]),
        helper.make_node("Sigmoid", ["sum"], ["gate"]),
        helper.make_node("Mul", ["gate", "sum"], ["z"]),
    ]
    ports = {
        name: helper.make_tensor_value_info(name, TensorProto.BFLOAT16, [SIDE, SIDE])
        for name in "xyz"
    }
    graph = helper.make_graph(nodes, "gated", [ports["x"], ports["y"]], [ports["z"]])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def program() -> pef.Program:
    return sambac.compile(model(), CompileOptions(level="O0"))


@pytest.fixture(scope="module")
def opened(program: pef.Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of the program beside one that has all numbers in the types of the host."""
    other = replace(program, symbols=tuple(replace(s, declared=0) for s in program.symbols))
    path = tmp_path_factory.mktemp("declared") / "page.html"
    text = page(*(report(each, {"name": "p.pef", "bytes": 1}) for each in (program, other)))
    path.write_text(text, encoding="utf-8")
    return path


def test_times_are_computed_of_what_the_device_moves(
    browser: Browser, opened: Path, program: pef.Program
) -> None:
    wide = {number for number, symbol in enumerate(program.symbols) if symbol.declared}
    assert wide
    for number, section in enumerate(program.sections):
        browser.open(opened, f"tab=graph&section={number}")
        assert "which is what the section is charged." in browser.run(
            "return [...document.querySelectorAll('#details .how')].map(e => e.textContent).join()"
        )
        assert wide & {*section.inputs, *section.outputs}
        assert MOVED in browser.text("#details")  # in, out, and along the edges
        assert KEPT not in browser.text("#details div:has(> button.jump)")


def test_a_symbol_has_both_sizes(browser: Browser, opened: Path, program: pef.Program) -> None:
    wide = next(number for number, symbol in enumerate(program.symbols) if symbol.declared)
    browser.open(opened, f"tab=symbols&symbol={wide}")
    facts = browser.text("#details table")
    assert "bfloat16/float32" in facts
    assert f"{KEPT} (1,048,576 bytes)" in facts
    assert f"{MOVED}, as bfloat16" in facts


def test_a_type_of_the_model_is_a_difference(
    browser: Browser, opened: Path, program: pef.Program
) -> None:
    browser.open(opened, "tab=compare")
    differ = browser.run(
        "return [...document.querySelectorAll('table')]"
        ".filter(table => table.tHead.rows[0].cells[0].innerText === 'symbol')"
        ".flatMap(table => [...table.tBodies[0].rows].map(row => row.cells[0].innerText))"
    )
    assert differ == [symbol.name for symbol in program.symbols if symbol.declared]
