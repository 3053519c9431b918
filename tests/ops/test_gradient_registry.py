"""Every operator of the training opset has a gradient, has none to have, or says why not."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import onnx
import pytest
from gradient_check import Case, check_finite_differences

from sambac.ops import FAMILIES
from sambac.ops.registry import WITHOUT_FAMILY

OPSET = 23
TESTS = Path(__file__).parent


def operators() -> dict[str, onnx.defs.OpSchema]:
    """Return the operators of the default domain that the training opset has."""
    found: dict[str, onnx.defs.OpSchema] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        newest = found.get(schema.name)
        fits = schema.domain == "" and schema.since_version <= OPSET
        if fits and (newest is None or newest.since_version < schema.since_version):
            found[schema.name] = schema
    return {name: schema for name, schema in found.items() if not schema.deprecated}


RULES = {name for family in FAMILIES for name in family.gradients}
CONSTANT = {name for family in FAMILIES for name in family.constant}
REFUSED = {
    name
    for family in FAMILIES
    for name, reason in family.undifferentiable.items()
    if isinstance(reason, str)
}
BODIES = {
    name
    for name, schema in operators().items()
    if schema.has_function or schema.has_context_dependent_function
}


def test_every_operator_has_an_answer():
    silent = set(operators()) - RULES - CONSTANT - REFUSED - BODIES - set(WITHOUT_FAMILY)
    assert silent == set()


def test_an_operator_has_one_answer():
    assert set() == RULES & CONSTANT
    assert set() == RULES & REFUSED
    assert set() == CONSTANT & REFUSED


def test_a_family_answers_for_its_own_operators():
    for family in FAMILIES:
        named = {*family.gradients, *family.constant, *family.undifferentiable}
        assert named - set(family.flops) == set(), family.name


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_reasons_are_phrases(family):
    for reason in family.undifferentiable.values():
        if isinstance(reason, str):
            assert reason
            assert not reason.endswith(".")


@pytest.mark.parametrize("p", [1, 2, 3])
def test_a_rule_whose_operator_no_kernel_runs(p: int):
    image = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    check_finite_differences(Case("GlobalLpPool", (image,), lambda x: x, {"p": p}))


def test_every_rule_is_tested():
    words = {
        node.value.rpartition(".")[2]
        for path in sorted(TESTS.glob("test_gradient*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert {rule for rule in RULES if rule.rpartition(".")[2] not in words} == set()
