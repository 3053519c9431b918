"""ONNX models that come quantised run as they are, with the operators that onnxruntime fuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

import sambac
import sambarun
from sambac.reconstruct.extract import extract_section

X = np.random.default_rng(2).standard_normal((1, 3, 10, 10)).astype(np.float32)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    network (float[1,3,10,10] x) => (float[1,5] y)
    {
        a = Conv <pads = [1,1,1,1]> (x, w0, b0)
        b = Relu (a)
        c = Conv (b, w1, b1)
        d = Relu (c)
        e = MaxPool <kernel_shape = [2,2], strides = [2,2]> (d)
        f = Flatten (e)
        y = Gemm (f, w2, b2)
    }
    """
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    shapes = {"w0": (8, 3, 3, 3), "b0": (8,), "w1": (8, 8, 3, 3), "b1": (8,),
              "w2": (128, 5), "b2": (5,)}  # fmt: skip
    for name, shape in shapes.items():
        content = (rng.standard_normal(shape) * np.prod(shape[1:]) ** -0.5).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(content, name))
    path = tmp_path_factory.mktemp("models") / "plain.onnx"
    onnx.save(model, path)
    return path


class _Reader(CalibrationDataReader):
    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self._batches: Iterator[dict[str, np.ndarray]] = iter(
            [{"x": rng.standard_normal(X.shape).astype(np.float32)} for _ in range(4)]
        )

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._batches, None)


def fused(path: Path) -> list[str]:
    """Return the operators that onnxruntime makes of a model."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(path.with_suffix(".fused.onnx"))
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    ort.InferenceSession(path, options, ["CPUExecutionProvider"])
    return sorted(node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node)


def check(path: Path) -> list[str]:
    """Compare a quantised model with its program; return what onnxruntime makes of the latter."""
    options = ort.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")  # or sums may saturate
    session = ort.InferenceSession(path, options, ["CPUExecutionProvider"])
    (exact,) = session.run(None, {"x": X})
    for level in ("O0", "O3"):
        program = sambac.compile(path, sambac.CompileOptions(level=level))  # type: ignore[arg-type]
        with sambarun.load(program, threads=1) as executable:
            (found,) = executable.run({"x": X}).values()
        np.testing.assert_allclose(found, exact, atol=0.02 * np.abs(exact).max())
    assert len(program.sections) == 1
    file, back = path.with_suffix(".pef"), path.with_suffix(".back.onnx")
    program.save(file)
    extract_section(file, 0, back)
    return fused(back)


@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator])
def test_static_models(form: QuantFormat, plain: Path) -> None:
    path = plain.with_name(f"{form.name}.onnx")
    quantize_static(plain, path, _Reader(), quant_format=form, per_channel=True,
                    activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)  # fmt: skip
    made = check(path)
    assert made.count("QLinearConv") == 2
    assert "Conv" not in made
    assert made == fused(path)


def test_dynamic_models(plain: Path) -> None:
    path = plain.with_name("dynamic.onnx")
    quantize_dynamic(plain, path, op_types_to_quantize=["MatMul", "Gemm"])
    assert check(path) == fused(path)


BEHIND = {
    "none": "q = Identity (s)",
    "pool": "q = MaxPool <kernel_shape = [2,2]> (s)",
    "float32": """
        d = DequantizeLinear (s, scale, zero)
        e = ReduceMean <axes = [2, 3], keepdims = 1> (d)
        q = QuantizeLinear (e, scale, zero)
    """,
    "sizes": """
        d = DequantizeLinear (s, scale, zero)
        e = Reshape (d, pairs)
        q = QuantizeLinear (e, scale, zero)
    """,
}


@pytest.mark.parametrize("behind", BEHIND.values(), ids=BEHIND)
def test_sizes_behind_operators_of_onnxruntime(behind: str, tmp_path: Path) -> None:
    """ONNX knows the types there, as they are those of zero points, and no sizes."""
    text = f"""
    <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    network (float[1,3,10,10] x) => (float[1,4,M,N] y)
    <float scale = {{0.02}}, uint8 zero = {{128}}, int64[4] pairs = {{1, 3, -1, 5}}>
    {{
        c = QuantizeLinear (x, scale, zero)
        s = com.microsoft.QLinearSigmoid (c, scale, zero, scale, zero)
        {behind}
        r = QLinearConv (q, scale, zero, w, scale, zero, scale, zero)
        y = DequantizeLinear (r, scale, zero)
    }}
    """
    model = onnx.parser.parse_model(text)
    content = np.random.default_rng(0).integers(0, 256, (4, 3, 1, 1), np.uint8)
    model.graph.initializer.append(onnx.numpy_helper.from_array(content, "w"))
    path = tmp_path / "behind.onnx"
    onnx.save(model, path)
    check(path)
    program = sambac.compile(path)
    assert all(each.shape is not None and None not in each.shape for each in program.symbols)


PRODUCTS_OF_CODES = {
    "MatMulNBits": "<K = 32, N = 2, bits = 4, block_size = 32> (h, codes, scales)",
    "MatMulBnb4": "<K = 32, N = 2, quant_type = 1, block_size = 32> (h, flat, absmax)",
    "DynamicQuantizeMatMul": "(h, bytes, scales)",
}


@pytest.mark.parametrize("op_type", PRODUCTS_OF_CODES)
def test_products_of_codes_are_not_trained_through(op_type: str) -> None:
    text = f"""
    <ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
    network (float[3,32] x) => (float[3,2] z)
    {{
        h = MatMul (x, w)
        z = com.microsoft.{op_type} {PRODUCTS_OF_CODES[op_type]}
    }}
    """
    model = onnx.parser.parse_model(text)
    for name, content in {
        "w": np.eye(32, dtype=np.float32),
        "codes": np.zeros((2, 1, 16), np.uint8),
        "flat": np.zeros(32, np.uint8),
        "bytes": np.zeros((32, 2), np.uint8),
        "scales": np.ones(2, np.float32),
        "absmax": np.ones(2, np.float32),
    }.items():
        if name in text:
            model.graph.initializer.append(onnx.numpy_helper.from_array(content, name))
    options = sambac.CompileOptions(train=True, loss=("mse:z,t",))
    with pytest.raises(sambac.CompileError, match=f"{op_type} .*quantised models are not trained"):
        sambac.compile(model, options)
