"""Passes that a compilation passes over would have changed nothing, whatever the operator."""

from __future__ import annotations

import warnings

import numpy as np
import onnx_ir as ir
import pytest
from onnx.backend.test.loader import load_model_tests
from passed_over import wrongly_passed_over

from sambac.errors import CompileError
from sambac.frontend import load
from sambac.options import CompileOptions
from sambac.passes.pipelines import (
    AFTER_GRADIENTS,
    BEFORE_GRADIENTS,
    LEGALIZE,
    SELECT_TRAINING_KERNELS,
    SIMPLIFY,
)

PASSES = (*LEGALIZE, *BEFORE_GRADIENTS, *AFTER_GRADIENTS, *SIMPLIFY, *SELECT_TRAINING_KERNELS)


def models() -> dict[str, ir.Model]:
    """Return a model for each operator and use of it, as the passes get it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # computing expected values overflows here and there
        np.random.seed(0)  # noqa: NPY002  the suite draws from the global generator
        cases = load_model_tests(kind="node")
    found = {}
    for case in cases:
        if "_expanded" in case.name:  # written with other operators, which have cases of their own
            continue
        try:
            found[case.name] = load(case.model, CompileOptions()).model
        except CompileError:
            continue
    return found


@pytest.mark.long
def test_passes_that_are_passed_over_would_change_nothing() -> None:
    wrong = {name: list(wrongly_passed_over(model, PASSES)) for name, model in models().items()}
    assert len(wrong) > 1000
    assert not {name: steps for name, steps in wrong.items() if steps}
