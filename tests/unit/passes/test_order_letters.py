"""Einsum without elements runs, where onnxruntime by itself ends the process."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import sambac
import sambarun

_SIZES = {"b": 2, "n": 3, "i": 2, "j": 4, "k": 5}


@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize(
    ("equation", "none"),
    [
        ("bij,bkj->bik", "b"),
        ("bij,bkj->bik", "j"),
        ("bij,bkj->bik", "k"),
        ("bnij,bnkj->bnik", "n"),
        ("bnik,bkni->bikn", "k"),
        ("...ij,...kj->...ik", "b"),
        ("ij,kj", "j"),
        ("ij,kj->ik", ""),
    ],
)
def test_results_are_empty_or_sums_of_nothing(equation: str, none: str, level: str) -> None:
    terms = equation.replace("...", "b").partition("->")[0].split(",")
    names = [f"x{index}" for index in range(len(terms))]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Einsum", names, ["y"], equation=equation)],
        "g",
        [
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [*term])
            for name, term in zip(names, terms, strict=True)
        ],
        [onnx.helper.make_empty_tensor_value_info("y")],
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9
    )
    model = onnx.shape_inference.infer_shapes(model)
    rng = np.random.default_rng(0)
    sizes = _SIZES | {none: 0}
    feeds = {
        name: rng.normal(size=[sizes[letter] for letter in term]).astype(np.float32)
        for name, term in zip(names, terms, strict=True)
    }
    program = sambac.compile(model, sambac.CompileOptions(level=level))
    with sambarun.load(program) as executable:
        found = executable.run(feeds)["y"]
    wanted = np.einsum(equation, *feeds.values())
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
