"""Quantised programs measured by what their user expects of outputs: labels, or numbers."""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

import sambac

HEADER = '<ir_version: 10, opset_import: ["" : 21]>'
CLASSES, ROWS = 8, 4
RANDOM = np.random.default_rng(0)
WEIGHTS = RANDOM.standard_normal((2, 64, CLASSES)).astype(np.float32)
X = RANDOM.standard_normal((6 * ROWS, 64)).astype(np.float32)
EXACT = np.stack([X.astype(float) @ each for each in WEIGHTS])


def network() -> onnx.ModelProto:
    """Two layers beside each other: scores, and numbers beside the class of the highest score."""
    text = f"""g (float[{ROWS},64] x) => (float[{ROWS},{CLASSES}] scores, float[{ROWS},{CLASSES}] y,
        int64[{ROWS}] best) {{
        scores = MatMul(x, w0)
        y = MatMul(x, w1)
        best = ArgMax<axis=1, keepdims=0>(scores)
    }}"""
    proto = onnx.parser.parse_model(f"{HEADER} {text}")
    for index, each in enumerate(WEIGHTS):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(each, f"w{index}"))
    return proto


def applied(
    folder: Path, expected: Mapping[str, np.ndarray], model: onnx.ModelProto, **options: object
) -> list[str]:
    """What became of the model, as its log has it."""
    np.savez(folder / "x.npz", x=X)
    np.savez(folder / "expected.npz", **expected)
    chosen = sambac.CompileOptions(
        precision="int4-weights",
        calibrate=folder / "x.npz",
        expect=folder / "expected.npz",
        **options,  # type: ignore[arg-type]
    )
    return list(json.loads(sambac.compile(model, chosen).producer.options)["applied"])


LABELS = EXACT[0].argmax(1)


def test_labels_are_counted(tmp_path: Path) -> None:
    labels = LABELS.copy()
    labels[:3] = (labels[:3] + 1) % CLASSES  # wrong in float32, too
    labels[3:9] = -100  # of no account
    (line,) = (x for x in applied(tmp_path, {"scores": labels}, network()) if "labels" in x)
    came, exact = (float(word.split()[0]) for word in line.partition(": ")[2].split(", "))
    assert line.startswith("wrong labels of 'scores': ")
    assert exact == float(f"{3 / 18:.3g}")
    # Weights of four bits move some of the 24 scores, but not most.
    assert exact <= came < 0.7


@pytest.mark.parametrize(
    ("expected", "measure"),
    [
        ({"scores": LABELS.astype(np.uint8)}, "wrong labels of 'scores'"),
        ({"scores": LABELS.reshape(6, ROWS)}, "wrong labels of 'scores'"),
        ({"best": LABELS}, "wrong numbers of 'best'"),
        ({"y": EXACT[1]}, "distance from what is expected of 'y'"),
    ],
)
def test_float32_is_as_expected(
    tmp_path: Path, expected: dict[str, np.ndarray], measure: str
) -> None:
    (line,) = (x for x in applied(tmp_path, expected, network()) if "in float32" in x)
    said, _, numbers = line.partition(": ")
    assert said == measure
    came, exact = (float(word.split()[0]) for word in numbers.split(", "))
    assert exact < 1e-6 < came


def test_layers_that_nobody_expects_anything_of_stay_quantised(tmp_path: Path) -> None:
    lines = applied(tmp_path, {"y": EXACT[1]}, network(), max_error=1e-5)
    # The layer of y is exact: that of scores has the larger error, but nobody asked for it.
    (line,) = (x for x in lines if "in float32" in x)
    assert float(line.partition(": ")[2].split()[0].rstrip(",")) < 1e-5
    strict = applied(tmp_path, {"scores": LABELS}, network(), max_error=1e-9)
    (line,) = (x for x in strict if "wrong labels" in x)
    assert "': 0, 0 in float32" in line


def test_what_is_wrong_in_float32_costs_no_layer(tmp_path: Path) -> None:
    wrong = (LABELS + 1) % CLASSES
    lines = applied(tmp_path, {"scores": wrong}, network(), max_error=0.3)
    assert lines[0] == "2 of 2 layers quantised"
    assert any(line.endswith(", 1 in float32") for line in lines)


def test_classes_on_the_second_axis(tmp_path: Path) -> None:
    text = f"""g (float[{ROWS},64] x) => (float[{ROWS},{CLASSES},1] scores) {{
        flat = MatMul(x, w0)
        axes = Constant<value_ints = [2]>()
        scores = Unsqueeze(flat, axes)
    }}"""
    proto = onnx.parser.parse_model(f"{HEADER} {text}")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(WEIGHTS[0], "w0"))
    lines = applied(tmp_path, {"scores": LABELS.reshape(-1, 1)}, proto)
    assert any(line.endswith(", 0 in float32") for line in lines)


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        ({"score": LABELS}, "'score' is no output of the model (did you mean 'scores'?)"),
        ({"scores": LABELS[:ROWS]}, "'scores' has 1 batch, and there are 6 to calibrate with"),
        ({"scores": LABELS + CLASSES}, "and the output 8 classes"),
        ({"scores": LABELS * 0 - 100}, "no label of 0 or more"),
        ({"scores": LABELS[:5]}, "labels have its sizes but for that of classes"),
        ({"best": LABELS.astype(float)}, "'best' is float64, and the output int64"),
        ({"y": EXACT[1][:, :3]}, "'y' is 24x3, and the output 4x8"),
        ({"y": EXACT[1].astype("S1")}, "numbers are compared"),
        ({"y": EXACT[1] * np.nan}, "'y': what is expected is infinite or NaN where the output"),
        ({"y": np.array([{}])}, "holds Python objects; numbers were expected"),
        ({}, "there is no array"),
    ],
)
def test_what_fits_no_output_is_told(
    tmp_path: Path, expected: dict[str, np.ndarray], words: str
) -> None:
    with pytest.raises(sambac.CompileError, match="expect") as caught:
        applied(tmp_path, expected, network())
    assert words in str(caught.value)


def test_open_batches_have_their_own_number_of_labels(tmp_path: Path) -> None:
    proto = network()
    for port in (*proto.graph.input, *proto.graph.output):
        port.type.tensor_type.shape.dim[0].dim_param = "n"
    with pytest.raises(sambac.CompileError, match=r"has the shape \(5,\) in a batch"):
        applied(tmp_path, {"scores": LABELS[:5]}, proto)
    lines = applied(tmp_path, {"scores": LABELS}, proto)
    assert any(line.endswith(", 0 in float32") for line in lines)


@pytest.mark.parametrize("option", ["calibrate", "expect"])
def test_files_that_hold_no_arrays_by_name_are_told(tmp_path: Path, option: str) -> None:
    np.savez_compressed(tmp_path / "x.npz", x=X)
    whole = (tmp_path / "x.npz").read_bytes()
    with zipfile.ZipFile(tmp_path / "foreign.npz", "w") as archive:
        archive.writestr("notes.txt", "no array")
    damaged = bytes(255 - byte if 100 <= at < 200 else byte for at, byte in enumerate(whole))
    np.save(tmp_path / "single.npy", X)
    files = {
        "single.npy": (None, "is a single array; make an .npz"),
        "words.npz": (b"words", "words.npz: it is no .npz file, or damaged."),
        "cut.npz": (whole[:-40], "it is no .npz file, or damaged (File is not a zip file)"),
        "damaged.npz": (damaged, "it is no .npz file, or damaged ("),
        "foreign.npz": (None, "foreign.npz: notes.txt: no array; store arrays alone"),
        "none.npz": (None, "No such file or directory."),
    }
    for name, (content, words) in files.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        chosen = {"calibrate": tmp_path / "x.npz", option: tmp_path / name}
        options = sambac.CompileOptions(precision="int4-weights", **chosen)  # type: ignore[arg-type]
        with pytest.raises(sambac.CompileError) as caught:
            sambac.compile(network(), options)
        assert words in str(caught.value)
        assert f"{option} (--{option}): " in str(caught.value)
        assert "pickle" not in str(caught.value)
