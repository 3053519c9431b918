"""Reductions along axes from the end, of as many rows as there are: none, too."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import sambac
import sambarun

_REDUCTIONS = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"),
    *("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
)


@pytest.mark.parametrize("opset", [12, 23])
def test_a_batch_of_none_has_no_results(opset: int) -> None:
    def spelled(name: str) -> str:
        if opset < 18:
            return f"{name}<axes = [-1], keepdims = 0>(x)"
        return f"{name}<keepdims = 0>(x, axes)"

    names = (*_REDUCTIONS, "ArgMax", "ArgMin")
    places = {"ArgMax": "ArgMax<axis = -1, keepdims = 0>(x)", "ArgMin": "ArgMin<axis = -1>(x)"}
    types = {"ArgMax": "int64[n]", "ArgMin": "int64[n, 1]"}
    outputs = ", ".join(f"{types.get(name, 'float[n]')} {name}_y" for name in names)
    body = " ".join(f"{name}_y = {places.get(name, spelled(name))}" for name in names)
    model = onnx.parser.parse_model(
        f'<ir_version: 7, opset_import: ["": {opset}]> g (float[n, 5] x) => ({outputs}) '
        f"<int64[1] axes = {{-1}}> {{ {body} }}"
    )
    with sambarun.load(sambac.compile(model)) as executable:
        for rows in (0, 2):
            found = executable.run({"x": np.ones((rows, 5), np.float32)})
            shapes = {name: found[f"{name}_y"].shape for name in names}
            assert shapes == {name: (rows, 1) if name == "ArgMin" else (rows,) for name in names}


@pytest.mark.parametrize(
    ("name", "dtype", "wanted"),
    [
        ("ReduceL1", "float", 0.0),
        ("ReduceL2", "float", 0.0),
        ("ReduceLogSum", "float", -np.inf),
        ("ReduceLogSumExp", "float", -np.inf),
        ("ReduceMax", "float", -np.inf),
        ("ReduceMax", "int64", -(2**63)),
        ("ReduceMax", "bool", False),
        ("ReduceMin", "float", np.inf),
        ("ReduceMin", "uint8", 255),
        ("ReduceProd", "int32", 1),
        ("ReduceSumSquare", "float", 0.0),
    ],
)
def test_what_is_made_of_nothing(name: str, dtype: str, wanted: float) -> None:
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 23]> g ({dtype}[2, 0] x) => ({dtype}[2] y) '
        f"<int64[1] axes = {{-1}}> {{ y = {name}<keepdims = 0>(x, axes) }}"
    )
    kind = {"float": "f", "bool": "?", "uint8": "B"}.get(dtype, dtype)
    with sambarun.load(sambac.compile(model)) as executable:
        found = executable.run({"x": np.zeros((2, 0), kind)})["y"]
    assert found.tolist() == [wanted, wanted]
