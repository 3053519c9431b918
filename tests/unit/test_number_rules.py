"""Number rules, and what is wrong with those that cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from sambac.errors import CompileError
from sambac.number_rules import NumberRule, read_number_rules, recorded, rules_of
from sambac.numerics import FORMATS
from sambac.options import Precision
from sambac.quantized_precisions import QUANTIZED


def read(folder: Path, text: str) -> tuple[NumberRule, ...]:
    path = folder / "rules.yaml"
    path.write_text(text)
    return read_number_rules(path)


def test_a_file_is_a_list_of_rules(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "- op_type: matmul\n"
        "  weights: Bfp8_b\n"
        "  fidelity: HiFi2\n"
        "- op_type: [add, mul]\n"
        "  name: 'encoder\\..*'\n"
        "  stage: bwd\n"
        "  operands: {0: Float16_b, 1: Bfp4_b}\n",
    )
    assert found == (
        NumberRule(op_type=("matmul",), weights="Bfp8_b", fidelity="HiFi2"),
        NumberRule(
            op_type=("add", "mul"),
            name=r"encoder\..*",
            stage="bwd",
            operands={0: "Float16_b", 1: "Bfp4_b"},
        ),
    )
    assert recorded(found) == [
        {"op_type": ["matmul"], "weights": "Bfp8_b", "fidelity": "HiFi2"},
        {
            "op_type": ["add", "mul"],
            "name": r"encoder\..*",
            "stage": "bwd",
            "operands": {"0": "Float16_b", "1": "Bfp4_b"},
        },
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1", "expected a list of rules, found a table"),
        ("- 3", "rule 1: expected a table, found a number"),
        ("- {fidelty: LoFi}", r"rule 1: unknown key 'fidelty' \(did you mean 'fidelity'\?\)"),
        ("- {fidelity: LoFi}\n- {op_type: 3, output: Bfp8}", "rule 2: op_type is 3; names of op"),
        ("- {op_type: add}", "rule 1: it says nothing of numbers; give factors, operands,"),
        ("- {fidelity: LoFi, fidelity: HiFi2}", "key 'fidelity' appears twice"),
        ("- {output: [Bfp8]}", "output is a list; choose Float32, Float16, Float16_b"),
        ("- {output: ''}", "it says nothing of numbers"),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(CompileError, match=rf"rules\.yaml: .*{words}"):
        read(tmp_path, text)


def test_all_that_is_wrong_is_told(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"rule 1: output is 'Bfp9'.*rule 2: unknown key 'x'"):
        read(tmp_path, "- {output: Bfp9}\n- {x: 1}")
    with pytest.raises(CompileError, match="cannot read the number rules: No such file"):
        read_number_rules(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("factors", "bfp8_b", r"factors is 'bfp8_b' \(did you mean 'Bfp8_b'\?\)"),
        ("operands", {"0": "Bfp8"}, "operands is a dict; choose .*, alone or by the numbers"),
        ("operands", {True: "Bfp8"}, "operands is a dict"),
        ("operands", {-1: "Bfp8"}, "operands is a dict"),
        ("weights", {0: 3}, "weights is 3; choose"),
        ("stage", "opt", "stage is 'opt'; choose fwd or bwd"),
        ("accumulate", "Bfp8", "accumulate is 'Bfp8'; choose Float32, Float16_b or Float16"),
        ("fidelity", "HiFi5", r"fidelity is 'HiFi5' \(did you mean 'HiFi"),
        ("rounding", "nearest", "rounding is 'nearest'; choose host, packer or truncate"),
        ("left", "A", "left is 'A'; choose SrcB or SrcA"),
        ("name", "(", "name is '\\(', which is no regular expression"),
        ("name", 3, "name is 3; a pattern was expected"),
        ("op_type", "add", "op_type is 'add'; names of operators"),
    ],
)
def test_words_that_there_are_not(field: str, value: Any, words: str) -> None:
    settings: dict[str, Any] = {"output": "Bfp8", field: value}
    with pytest.raises(CompileError, match=f"number rule: {words}"):
        NumberRule(**settings)


def test_what_a_precision_means() -> None:
    formats = {*FORMATS} - {"Float32"}
    whole = {*QUANTIZED}
    assert {*get_args(Precision)} == {"float32", "mixed", "bfloat16", *formats, *whole}
    assert all(rules_of(precision) == () for precision in whole)
    assert rules_of("float32") == ()
    assert rules_of("mixed") == rules_of("Float16_b") == (NumberRule(factors="Float16_b"),)
    assert rules_of("bfloat16") == (NumberRule(operands="Float16_b", output="Float16_b"),)
    assert rules_of("Bfp8_b") == (NumberRule(factors="Bfp8_b"),)
