"""The training operators of ONNX's preview domain pass the backend tests, which plain fails."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import sambac
import sambarun

Arrays = list[np.ndarray]
NAMES = (
    "test_adagrad",
    "test_adagrad_multiple",
    "test_adam",
    "test_adam_multiple",
    "test_gradient_of_add",
    "test_gradient_of_add_and_mul",
    "test_momentum",
    "test_momentum_multiple",
    "test_nesterov_momentum",
)


@pytest.fixture(scope="module")
def cases() -> dict[str, tuple[onnx.ModelProto, Arrays, Arrays]]:
    from onnx.backend.test.case import node
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some cases of the collection overflow on purpose
        for operator in ("adagrad", "adam", "momentum"):  # all of them would take seconds
            importlib.import_module(f"{node.__name__}.{operator}")
        found = [*node._NodeTestCases, *load_model_tests(kind="simple")]
    return {case.name: _content(case) for case in found if case.name in NAMES}


def _content(case: object) -> tuple[onnx.ModelProto, Arrays, Arrays]:
    if case.model is not None:  # type: ignore[attr-defined]
        inputs, outputs = case.data_sets[0]  # type: ignore[attr-defined]
        return case.model, list(inputs), list(outputs)  # type: ignore[attr-defined]
    folder = Path(case.model_dir)  # type: ignore[attr-defined]
    data = folder / "test_data_set_0"
    inputs, outputs = (
        [numpy_helper.to_array(onnx.load_tensor(path)) for path in sorted(data.glob(f"{kind}*"))]
        for kind in ("input", "output")
    )
    return onnx.load(folder / "model.onnx"), inputs, outputs


@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize("name", NAMES)
def test_case(
    name: str, level: str, cases: dict[str, tuple[onnx.ModelProto, Arrays, Arrays]]
) -> None:
    model, inputs, outputs = cases[name]
    program = sambac.compile(model, sambac.CompileOptions(level=level))  # type: ignore[arg-type]
    feeds = dict(zip((value.name for value in model.graph.input), inputs, strict=True))
    with sambarun.load(program) as executable:
        results = executable.run(feeds)
    for value, expected in zip(model.graph.output, outputs, strict=True):
        np.testing.assert_allclose(results[value.name], expected, rtol=1e-3, atol=1e-7)


def test_plain_onnxruntime_has_no_kernels_for_them(
    cases: dict[str, tuple[onnx.ModelProto, Arrays, Arrays]],
) -> None:
    model, _, _ = cases["test_adam"]
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.Fail):
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
