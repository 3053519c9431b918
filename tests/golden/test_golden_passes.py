"""Golden tests of the passes: text in, text out.

A case is one file in `cases/`:

    fold_into_conv, eliminate_dead_code  the passes to run, as `name` or `name{option=value}`
    refuses: the weight has another ...  optional: a reason that a rule has to give
    <ir_version ...> ...                 the model, as ONNX text
    ----
    <ir_version ...> ...                 the model that the passes have to make of it

Types and shapes inside are inferred before the passes run. `pytest tests/golden --update-golden`
writes the last part. Whatever the text says, both models also have to give the same numbers.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from passed_over import unsaid_changes, wrongly_passed_over

from sambac.options import CompileOptions
from sambac.passes.base import Pass
from sambac.passes.device_numbers.precision import rounding
from sambac.passes.device_numbers.round_numbers import RoundNumbers
from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.passes.pipelines import (
    AFTER_GRADIENTS,
    BEFORE_GRADIENTS,
    LEGALIZE,
    SELECT_TRAINING_KERNELS,
    SIMPLIFY,
)
from sambac.passes.quantize.convolve_tokens import ConvolveTokens
from sambac.passes.select_kernels.choose_convolutions import ChooseConvolutions
from sambac.passes.select_kernels.choose_products import ChooseProducts
from sambac.variants.products import WriteProducts

CASES = sorted((Path(__file__).parent / "cases").glob("*.txt"))
ROUNDING = rounding(CompileOptions(precision="mixed"))
REWRITING = (
    *BEFORE_GRADIENTS,
    *AFTER_GRADIENTS,
    *SIMPLIFY,
    *SELECT_TRAINING_KERNELS,
    *ROUNDING,
    ChooseConvolutions(),
    ChooseProducts(),
    ConvolveTokens(),
    WriteProducts(),
)
PASSES = {step.name: type(step) for step in (*LEGALIZE, *REWRITING)}
SEPARATOR = "----\n"
SPEC = re.compile(r"\s*(?P<name>\w+)(?:\{(?P<options>[^}]*)\})?\s*")


@dataclasses.dataclass(frozen=True)
class Case:
    spec: str
    refusals: tuple[str, ...]
    model: str
    expected: str | None


def parse(text: str) -> Case:
    before, separator, after = text.partition(SEPARATOR)
    spec, *rest = before.splitlines(keepends=True)
    refusals = tuple(
        line.removeprefix("refuses:").strip() for line in rest if line.startswith("refuses:")
    )
    model = "".join(line for line in rest if not line.startswith("refuses:"))
    return Case(spec.strip(), refusals, model, after if separator else None)


def build_passes(spec: str) -> list[Pass]:
    """Read `a, b{bytes=64}, round_numbers{precision=mixed}`."""
    steps = []
    for match in SPEC.finditer(spec):
        made = PASSES[match["name"]]
        pairs = [item.split("=") for item in (match["options"] or "").split(",") if item]
        if made is RoundNumbers:
            steps += rounding(CompileOptions(**{key.strip(): word for key, word in pairs}))
            continue
        steps.append(made(**{key.strip(): int(value) for key, value in pairs}))
    return steps


def text_of(model: ir.Model) -> str:
    proto = ir.to_proto(model)
    del proto.graph.value_info[:]
    return onnx.printer.to_text(proto).replace(" \n", "\n").strip() + "\n"


def read_model(text: str) -> ir.Model:
    model = ir.from_onnx_text(text)
    for index, node in enumerate(model.graph.all_nodes()):
        node.name = f"n{index}"
    InferShapes()(model)
    return model


def run(model: ir.Model) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        ir.to_proto(model).SerializeToString(), options, ["CPUExecutionProvider"]
    )
    rng = np.random.default_rng(0)
    makers: dict[str, Callable[[tuple[int, ...]], np.ndarray]] = {
        "tensor(float)": lambda shape: rng.standard_normal(shape, dtype=np.float32),
        "tensor(float16)": lambda shape: rng.standard_normal(shape).astype(np.float16),
        "tensor(int64)": lambda shape: rng.integers(0, 3, shape),
        "tensor(int32)": lambda shape: rng.integers(0, 3, shape, dtype=np.int32),
        "tensor(uint8)": lambda shape: rng.integers(0, 3, shape, dtype=np.uint8),
        "tensor(bool)": lambda shape: np.asarray(rng.integers(0, 2, shape) > 0),
    }
    feed = {
        value.name: makers[value.type](
            tuple(size if isinstance(size, int) else 2 for size in value.shape)
        )
        for value in session.get_inputs()
    }
    return session.run(None, feed)


def test_there_are_cases() -> None:
    assert len(CASES) > 40


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_golden(
    path: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    case = parse(path.read_text(encoding="utf-8"))
    model = read_model(case.model)
    with caplog.at_level(logging.DEBUG, logger="sambac"):
        for step in build_passes(case.spec):
            step(model)
    for original, rewritten in zip(run(read_model(case.model)), run(model), strict=True):
        tolerance = 1e-2 if original.dtype == np.float16 else 1e-5
        if RoundNumbers.name in case.spec:
            tolerance = 1.0 if "Bfp" in case.spec else 3e-2
        np.testing.assert_allclose(original, rewritten, rtol=tolerance, atol=tolerance)
        assert original.dtype == rewritten.dtype
    found = text_of(model)
    for reason in case.refusals:
        assert reason in caplog.text
        assert found == text_of(read_model(case.model)), "it refused, yet the model changed"
    if request.config.getoption("--update-golden", default=False):
        head = path.read_text(encoding="utf-8").partition(SEPARATOR)[0].rstrip() + "\n"
        path.write_text(head + SEPARATOR + found, encoding="utf-8")
        return
    if case.expected is None:
        pytest.fail(f"{path.name} has no expected part: run `make golden` and review what it adds")
    assert found == case.expected, "if this is wanted, run `make golden` and review the diff"


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_pass_that_is_passed_over_would_change_nothing(path: Path) -> None:
    case = parse(path.read_text(encoding="utf-8"))
    for text in filter(None, (case.model, case.expected)):
        for make in PASSES.values():
            assert list(wrongly_passed_over(read_model(text), (make(),))) == []


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_pass_says_whether_it_has_changed_anything(path: Path) -> None:
    case = parse(path.read_text(encoding="utf-8"))
    for text in filter(None, (case.model, case.expected)):
        for name, make in PASSES.items():
            assert not unsaid_changes(read_model(text), make()), name


@pytest.mark.parametrize("name", sorted({step.name for step in REWRITING}))
def test_every_pass_has_cases_that_fire_and_that_do_not(name: str) -> None:
    cases = [parse(path.read_text(encoding="utf-8")) for path in CASES]
    mine = [case for case in cases if re.search(rf"\b{name}\b", case.spec)]
    unchanged = [case for case in mine if text_of(read_model(case.model)) == case.expected]
    if name != InferShapes.name:
        assert mine
        assert len(unchanged) < len(mine), f"no case in which {name} rewrites"
        assert unchanged, f"no case in which {name} declines"
