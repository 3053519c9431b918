"""Programs with values that are no tensors, open sizes, subgraphs: all have explanations."""

from __future__ import annotations

from functools import cache

import pytest
from onnx.backend.test.loader import load_model_tests

import sambac
from sambac.explain import explain

NAMES = (
    "test_if", "test_if_seq", "test_loop11", "test_scan9_sum", "test_sequence_insert_at_back",
    "test_string_concat", "test_strnormalizer_export_monday_casesensintive_lower",
    "test_nonzero_example", "test_resize_upsample_scales_nearest", "test_lstm_defaults",
    "test_optional_has_element_tensor_input", "test_shape", "test_constant", "test_identity",
    "test_maxpool_with_argmax_2d_precomputed_pads", "test_compress_0",
)  # fmt: skip


@cache
def _models():
    return {case.name: case.model for case in load_model_tests(kind="node")}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize("name", NAMES)
def test_everything_in_it_is_explained(name, level):
    program = sambac.compile(_models()[name], sambac.CompileOptions(level=level))
    things = [f"section:{number}" for number in range(len(program.sections))]
    things += [f"symbol:{symbol.name}" for symbol in program.symbols]
    groups = [group for section in program.sections for group in section.groups]
    things += [f"operator:{op.name}" for group in groups for op in group.operators]
    assert things
    for thing in (None, *things):
        (found,) = explain(program, thing)
        assert found.facts
        assert all(fact.text and fact.topic for fact in found.facts)
        assert all(line.isprintable() for line in found.lines(79))


@pytest.mark.filterwarnings("ignore")
def test_headings_are_no_wider_than_the_terminal():
    program = sambac.compile(_models()["test_lstm_defaults"], sambac.CompileOptions())
    (found,) = explain(program)
    lines = [*found.lines(40)]
    assert max(map(len, lines)) <= 40
    assert "  - " in "\n".join(lines)
