"""Feed-forward blocks in bytes: images made of tokens, and activations whose results are bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import pef
import sambac
import sambarun

BLOCK = """
<ir_version: 10, opset_import: ["" : 20]>
block (float[1,64,32] x) => (float[1,64,32] y)
<int64[4] image = {1, 64, 8, 8}, int64[3] tokens = {1, 64, 64}, float root = {1.4142135},
 float one = {1.0}, float half = {0.5}>
{
    a = MatMul (x, w0)
    b = Add (a, b0)
    c = Transpose <perm = [0,2,1]> (b)
    d = Reshape (c, image)
    e = Conv <group = 64, pads = [1,1,1,1]> (d, w1)
    f = Reshape (e, tokens)
    g = Transpose <perm = [0,2,1]> (f)
    h = Gelu (g)
    z = MatMul (h, w2)
    y = Add (z, x)
}
"""
WRITTEN_OUT = """i = Div (g, root)
    j = Erf (i)
    k = Add (j, one)
    l = Mul (g, k)
    h = Mul (l, half)"""
WEIGHTS = {"w0": (32, 64), "b0": (64,), "w1": (64, 1, 3, 3), "w2": (64, 32)}
FEEDS = {"x": np.random.default_rng(2).standard_normal((1, 64, 32)).astype(np.float32)}


def block(text: str = BLOCK) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    for name, shape in WEIGHTS.items():
        content = (rng.standard_normal(shape) * 0.3).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(content, name))
    return model


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    path = tmp_path / "samples.npz"
    np.savez(path, x=np.random.default_rng(1).standard_normal((6, 64, 32)).astype(np.float32))
    return path


def operators(program: pef.Program) -> list[str]:
    groups = (group for section in program.sections for group in section.groups)
    return [operator.op_type for group in groups for operator in group.operators]


def is_coarse(program: pef.Program, folder: Path) -> bool:
    """Tell whether an activation is computed by the hyperbolic tangent."""
    program.save(folder / "block.pef")
    return b"tanh" in (folder / "block.pef").read_bytes()


def run(program: pef.Program) -> np.ndarray:
    with sambarun.load(program, threads=1) as executable:
        return np.array(executable.run(dict(FEEDS))["y"])


def off(program: pef.Program, text: str = BLOCK) -> float:
    exact = run(sambac.compile(block(text)))
    return float(np.linalg.norm(run(program) - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("text", [BLOCK, BLOCK.replace("h = Gelu (g)", WRITTEN_OUT)])
def test_tokens_that_are_read_as_an_image_are_bytes(
    text: str, samples: Path, tmp_path: Path
) -> None:
    options = sambac.CompileOptions(precision="int8", calibrate=samples)
    program = sambac.compile(block(text), options)
    found = operators(program)
    assert found.count("QLinearConv") == 2
    assert found.count("QuantizeLinear") == 1  # of the tokens; the image is bytes as it comes
    assert found.count("MatMulIntegerToFloat") == 1
    assert found.count("Gelu") == 1
    assert is_coarse(program, tmp_path)
    assert off(program, text) < 0.02


def test_opsets_without_the_activation_have_another_operator(samples: Path) -> None:
    text = BLOCK.replace("h = Gelu (g)", WRITTEN_OUT).replace(": 20]", ": 17]")
    program = sambac.compile(
        block(text), sambac.CompileOptions(precision="int8", calibrate=samples)
    )
    assert operators(program).count("FastGelu") == 1
    assert off(program, text) < 0.02


def test_without_ranges_the_product_stays_one() -> None:
    program = sambac.compile(block(), sambac.CompileOptions(precision="int8"))
    assert operators(program).count("MatMulIntegerToFloat") == 2


@pytest.mark.parametrize("precision", ["float32", "int8-weights", "int4-weights"])
def test_without_bytes_the_activation_is_exact(precision: str, tmp_path: Path) -> None:
    program = sambac.compile(block(), sambac.CompileOptions(precision=precision))
    assert not is_coarse(program, tmp_path)


BEFORE_IMAGES = """
<ir_version: 10, opset_import: ["" : 20]>
image (float[1,8,4,4] x) => (float[1,16,4,4] y)
<float below = {BELOW}>
{
    a = Sub (x, below)
    b = Gelu (a)
    y = Conv (b, w)
}
"""


@pytest.mark.parametrize(("below", "coarse"), [(0.0, True), (4.0, False)])
def test_an_activation_in_finer_codes_than_its_error_is_exact(
    below: float, coarse: bool, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(BEFORE_IMAGES.replace("BELOW", str(below)))
    filters = rng.standard_normal((16, 8, 1, 1)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(filters, "w"))
    path = tmp_path / "samples.npz"
    np.savez(path, x=rng.uniform(-3, 3, (1, 8, 4, 4)).astype(np.float32))
    program = sambac.compile(model, sambac.CompileOptions(precision="int8", calibrate=path))
    assert is_coarse(program, tmp_path) == coarse


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("float[1,64,32] y)", "float[1,64,32] y, float[1,64,64] h)"),  # given out
        ("y = Add (z, x)", "m = MatMul (h, x)\n    y = Add (z, m)"),  # read in float32
        ("h = Gelu (g)", WRITTEN_OUT.replace("(l, half)", "(l, one)")),  # no half
        ("h = Gelu (g)", WRITTEN_OUT.replace("Div (g, root)", "Div (root, g)")),
        ("h = Gelu (g)", WRITTEN_OUT.replace("Mul (g, k)", "Mul (j, k)")),
    ],
)
def test_other_activations_stay_as_they_are(
    old: str, new: str, samples: Path, tmp_path: Path
) -> None:
    text = BLOCK.replace(old, new)
    options = sambac.CompileOptions(precision="int8", calibrate=samples)
    program = sambac.compile(block(text), options)
    assert not is_coarse(program, tmp_path)
    assert off(program, text) < 0.03


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("float[1,64,32] y)", "float[1,64,32] y, float[1,64,8,8] d)"),
        ("float[1,64,32] y)", "float[1,64,32] y, float[1,64,64] b)"),
        (
            "f = Reshape (e, tokens)",
            "n = Sigmoid (d)\n    o = Add (e, n)\n    f = Reshape (o, tokens)",
        ),
        ("perm = [0,2,1]> (b)", "perm = [0,1,2]> (b)"),  # no tokens, whatever their sizes
        ("Transpose <perm = [0,2,1]> (b)", "Identity (b)"),
    ],
)
def test_other_images_stay_products(old: str, new: str, samples: Path) -> None:
    text = BLOCK.replace(old, new, 1)
    options = sambac.CompileOptions(precision="int8", calibrate=samples)
    program = sambac.compile(block(text), options)
    found = operators(program)
    assert (found.count("MatMulIntegerToFloat"), found.count("QLinearConv")) == (2, 1)
    assert off(program, text) < 0.03
