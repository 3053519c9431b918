"""`sambac opt`: passes run alone; and how long the stages of a compilation take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import parser

_MODEL = """
<ir_version: 9, opset_import: ["" : 19]>
g (float[2,3] x) => (float[2,3] y)
<float two = {2.0}>
{
  a = Identity (x)
  b = Mul (a, two)
  c = Mul (a, two)
  y = Add (b, c)
}
"""


@pytest.fixture
def doubled(tmp_path: Path) -> Path:
    path = tmp_path / "doubled.onnx"
    onnx.save(parser.parse_model(_MODEL), path)
    return path


def test_a_table_of_all_passes(sambac: Callable, doubled: Path) -> None:
    result = sambac("opt", doubled)
    assert (result.code, result.err) == (0, "")
    rows = [line.split() for line in result.out.splitlines()[2:]]
    names = [row[0] for row in rows]
    assert names[0] == "inline_functions"
    assert names[-1] == "eliminate_dead_code"
    by_name = {row[0]: row[3:] for row in rows if row[-1] != "-"}
    assert by_name["remove_no_ops"] == ["3", "-1"]
    assert by_name["eliminate_common_subexpressions"] == ["2", "-1"]
    assert {path.name for path in doubled.parent.iterdir()} == {doubled.name}


def test_what_each_pass_changed(sambac: Callable, doubled: Path) -> None:
    result = sambac(
        "opt", doubled, "--passes", "remove_no_ops, eliminate_common_subexpressions", "--diff"
    )
    assert (result.code, result.err) == (0, "")
    first, second = result.out.split("\n\n")[:2]
    assert first.startswith("remove_no_ops: 3 operators, ")
    assert any(line.startswith("-") and "a = Identity (x)" in line for line in first.splitlines())
    assert any(line.startswith("+") and "b = Mul (x, two)" in line for line in first.splitlines())
    assert second.startswith("eliminate_common_subexpressions: 2 operators, ")
    assert any(line.startswith("+") and "y = Add (b, b)" in line for line in second.splitlines())


def test_a_pass_that_finds_nothing_says_so(sambac: Callable, doubled: Path) -> None:
    result = sambac("opt", doubled, "--passes", "lower_lrn", "--diff")
    assert (result.code, result.out) == (0, "No change by lower_lrn.\n")


def test_passes_rely_on_the_legal_form_unless_its_own_are_named(
    sambac: Callable, doubled: Path
) -> None:
    alone = sambac("opt", doubled, "--passes", "sort_nodes").out.splitlines()[2:]
    assert [line.split()[0] for line in alone] == ["sort_nodes"]
    stage = sambac("opt", doubled, "--passes", "legalize,simplify").out.splitlines()[2:]
    assert stage[0].split()[0] == "inline_functions"
    assert stage[-1].split()[0] == "eliminate_dead_code"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--passes", "merge_dupicates"], "There is no pass 'merge_dupicates' (did you mean"),
        (["--passes", ","], "There is no pass ''; ''; there are legalize, simplify"),
        (["--passes", "eliminate_dead_code,x,y"], "There is no pass 'x'; 'y'; there are"),
        (["--input", "z=2x3"], "has no input 'z'; its inputs are x"),
        (["--input", "x=2x"], "Error: --input x=2x: expected NAME=SHAPE"),
    ],
)
def test_wrong_words(sambac: Callable, doubled: Path, words: list[str], said: str) -> None:
    result = sambac("opt", doubled, *words)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert "Traceback" not in result.err


def test_an_unsound_model_is_the_users_to_mend(sambac: Callable, tmp_path: Path) -> None:
    path = tmp_path / "odd.onnx"
    path.write_bytes(b"no model")
    result = sambac("opt", path)
    assert result.code == 2
    assert "odd.onnx" in result.err


def test_timing_is_a_table_of_stages(sambac: Callable, doubled: Path) -> None:
    result = sambac("compile", doubled, "--timing", "-o", doubled.with_suffix(".pef"))
    assert result.code == 0
    stages = [line.split("  ")[1] for line in result.out.splitlines()[4:]]
    assert stages[:3] == ["import", "load", "legalize"]
    assert stages[-2:] == ["write", "all"]
