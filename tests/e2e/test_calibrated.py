"""Programs calibrated on samples: convolutions of bytes, measured errors, layers that fall back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import get_args

import numpy as np
import onnx
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

import pef
import sambac
import sambarun
from benchmarks.models.light import randomized
from pef.report import report
from sambac.quantized_precisions import Observer
from sambarun.device import image

TEXT = """
<ir_version: 10, opset_import: ["" : 21]>
network (float[1,4,12,12] x) => (float[1,10] y, float[1,16,6,6] side)
{
    a = Conv <pads = [1,1,1,1]> (x, w0, b0)
    b = Relu (a)
    c = Conv <pads = [1,1,1,1]> (b, w1, b1)
    d = Add (c, b)
    e = Relu (d)
    f = Conv <group = 8, pads = [1,1,1,1]> (e, w2)
    low = Constant <value = float {0}> ()
    high = Constant <value = float {6}> ()
    g = Clip (f, low, high)
    h = Concat <axis = 1> (g, b)
    side = MaxPool <kernel_shape = [2,2], strides = [2,2]> (h)
    i = GlobalAveragePool (side)
    j = Flatten (i)
    y = Gemm (j, w3, b3)
}
"""
WEIGHTS = {
    "w0": (8, 4, 3, 3), "b0": (8,), "w1": (8, 8, 3, 3), "b1": (8,), "w2": (8, 1, 3, 3),
    "w3": (16, 10), "b3": (10,),
}  # fmt: skip
Feeds = Mapping[str, np.ndarray]


def network() -> onnx.ModelProto:
    model = onnx.parser.parse_model(TEXT)
    rng = np.random.default_rng(0)
    for name, shape in WEIGHTS.items():
        scale = np.prod(shape[1:]) ** -0.5 if len(shape) > 1 else 0.1
        content = (rng.standard_normal(shape) * scale).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(content, name))
    return model


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    path = tmp_path / "samples.npz"
    np.savez(path, x=np.random.default_rng(1).standard_normal((6, 4, 12, 12)).astype(np.float32))
    return path


FEEDS = {"x": np.random.default_rng(2).standard_normal((1, 4, 12, 12)).astype(np.float32)}


def run(program: pef.Program, feeds: Feeds) -> dict[str, np.ndarray]:
    with sambarun.load(program, threads=1) as executable:
        return {name: np.array(value) for name, value in executable.run(dict(feeds)).items()}


def error(found: Mapping[str, np.ndarray], exact: Mapping[str, np.ndarray]) -> float:
    return max(
        float(np.linalg.norm(found[name] - exact[name]) / np.linalg.norm(exact[name]))
        for name in exact
    )


def compiled(model: onnx.ModelProto, samples: Path, **options: object) -> pef.Program:
    chosen = sambac.CompileOptions(precision="int8", calibrate=samples, **options)  # type: ignore[arg-type]
    return sambac.compile(model, chosen)


def operators(program: pef.Program) -> list[str]:
    return [
        operator.op_type
        for section in program.sections
        for group in section.groups
        for operator in group.operators
    ]


def test_what_stands_between_convolutions_works_on_bytes(samples: Path) -> None:
    found = operators(compiled(network(), samples))
    assert sorted(found) == sorted([
        *("QuantizeLinear", "QLinearConv", "QLinearConv", "QLinearAdd", "QLinearConv"),
        *("QLinearConcat", "MaxPool", "DequantizeLinear", "GlobalAveragePool", "Flatten", "Gemm"),
    ])  # fmt: skip


@pytest.mark.parametrize("observer", get_args(Observer))
def test_observers(observer: str, samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = run(sambac.compile(network()), FEEDS)
    program = compiled(network(), samples, observer=observer)
    here = run(program, FEEDS)
    assert 1e-4 < error(here, exact) < 0.06
    monkeypatch.setattr(image, "host_features", lambda tuning: frozenset())
    portable = run(program, FEEDS)
    # Products are exact in both, but a sum may be rounded to the other of two bytes.
    assert error(portable, here) < 0.02


@pytest.mark.parametrize("level", ["O0", "O1"])
def test_levels_give_the_same(level: str, samples: Path) -> None:
    whole = run(compiled(network(), samples), FEEDS)
    assert error(run(compiled(network(), samples, level=level), FEEDS), whole) < 0.02


def test_files_and_traffic_shrink(samples: Path) -> None:
    plain = sambac.compile(network(), sambac.CompileOptions(level="O0"))
    small = compiled(network(), samples, level="O0")

    def moved(program: pef.Program) -> int:
        return sum(
            section.estimate.bytes_in + section.estimate.bytes_out for section in program.sections
        )

    assert moved(small) < 0.45 * moved(plain)


def rows(program: pef.Program) -> dict[str, dict[str, object]]:
    return {row["layer"]: dict(row) for row in report(program)["layers"]}


def test_the_log_has_errors(samples: Path) -> None:
    program = compiled(network(), samples)
    found = rows(program)
    assert [row["operator"] for row in found.values()] == ["Conv", "Conv", "Conv"]
    for row in found.values():
        assert row["precision"] == "int8"
        assert 1e-4 < float(str(row["alone"])) < 0.03
        assert float(str(row["alone"])) <= float(str(row["in_sequence"])) * 1.5
    applied = json.loads(program.producer.options)["applied"]
    assert applied[0] == "3 of 3 layers quantised"
    assert applied[1].startswith("relative error of 'y': ")


def test_the_measured_error_is_that_of_the_program(samples: Path) -> None:
    program = compiled(network(), samples)
    plain = sambac.compile(network())
    batches = np.split(np.load(samples)["x"], 6)
    found, exact = ([run(each, {"x": x})["y"] for x in batches] for each in (program, plain))
    (line,) = (text for text in json.loads(program.producer.options)["applied"] if "'y'" in text)
    joint = np.linalg.norm(np.stack(found) - np.stack(exact)) / np.linalg.norm(np.stack(exact))
    assert float(line.split()[-1]) == pytest.approx(joint, rel=0.2)


def told(program: pef.Program) -> float:
    """Return the largest error of an output that the program tells."""
    lines = json.loads(program.producer.options)["applied"]
    return max(float(line.split()[-1]) for line in lines if line.startswith("relative error"))


@pytest.mark.parametrize("share", [2.0, 0.8, 0.0001])
def test_layers_fall_back_until_the_error_is_small(share: float, samples: Path) -> None:
    limit = told(compiled(network(), samples)) * share
    program = compiled(network(), samples, max_error=limit)
    assert told(program) <= limit
    layers = rows(program).values()
    kept, others = (
        [row for row in layers if row["precision"] == precision]
        for precision in ("float32", "int8")
    )
    assert len(kept) == 0 if share > 1 else len(kept) > 0
    assert len(others) == 0 if share < 0.5 else len(others) > 0
    assert all(row["alone"] is not None for row in layers)


def test_weights_alone_fall_back_too(tmp_path: Path) -> None:
    from benchmarks.models.transformers import Shape, gpt, token_inputs

    shape = Shape(layers=1, hidden=64, heads=2, length=8, vocabulary=100)
    model = gpt(shape)
    path = tmp_path / "ids.npz"
    np.savez(path, **token_inputs(model, shape))
    options = sambac.CompileOptions(precision="int4-weights", calibrate=path, max_error=0.08)
    program = sambac.compile(model, options)
    feeds = token_inputs(model, shape)
    assert error(run(program, feeds), run(sambac.compile(model), feeds)) <= 0.081
    kinds = [row["precision"] for row in rows(program).values()]
    assert 0 < kinds.count("float32") < len(kinds)


def test_equal_samples_give_equal_files(tmp_path: Path, samples: Path) -> None:
    files = [tmp_path / name for name in ("a.pef", "b.pef")]
    for file in files:
        compiled(network(), samples, max_error=0.012, observer="entropy").save(file)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_model_of_an_old_opset(tmp_path: Path) -> None:
    model = randomized("squeezenet")
    assert model.opset_import[0].version < 12
    name = model.graph.input[0].name
    path = tmp_path / "images.npz"
    images = np.random.default_rng(0).standard_normal((2, 3, 224, 224)).astype(np.float32)
    np.savez(path, **{name: images})
    program = compiled(model, path)
    assert "Conv" not in operators(program)
    feeds = {name: images[:1]}
    assert error(run(program, feeds), run(sambac.compile(model), feeds)) < 0.1


PLAIN = ("QLinearConv", "DequantizeLinear")
FORMS = {
    "signal": (
        *((1, 16, 20), (8, 16, 3), {}, ("MaxPool", {"kernel_shape": [2]})),
        ("QLinearConv", "MaxPool", "DequantizeLinear"),
    ),
    "volume": ((1, 4, 6, 6, 6), (8, 4, 3, 3, 3), {"pads": [1] * 6}, None, PLAIN),
    "open batch": (
        *(("n", 4, 12, 12), (8, 4, 3, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ("Flatten", {}),
        ("QLinearConv", "Flatten", "DequantizeLinear"),
    ),
    "groups": (
        *((2, 16, 12, 12), (8, 4, 3, 3), {"group": 4, "dilations": [2, 2]}),
        ("Transpose", {"perm": [0, 2, 3, 1]}),
        ("Transpose", *PLAIN),
    ),
    "short sums": ((1, 3, 12, 12), (8, 3, 3, 3), {}, ("Relu", {}), PLAIN),
    "pointwise": ((1, 8, 12, 12), (16, 8, 1, 1), {}, ("Sigmoid", {}), (*PLAIN, "Sigmoid")),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms_of_convolutions(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, filters, attributes, tail, behind = FORMS[name]
    nodes = [onnx.helper.make_node("Conv", ["x", "w", "b"], ["c"], **attributes)]
    if tail is not None:
        nodes.append(onnx.helper.make_node(tail[0], ["c"], ["d"], **tail[1]))
    rng = np.random.default_rng(0)
    weights = [
        onnx.numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), weight)
        for weight, shape in (("w", filters), ("b", filters[:1]))
    ]
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes,
        "form",
        [onnx.helper.make_tensor_value_info("x", kind, sizes)],
        [onnx.helper.make_tensor_value_info(nodes[-1].output[0], kind, None)],
        weights,
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    model = onnx.shape_inference.infer_shapes(model)
    shape = [size if isinstance(size, int) else 2 for size in sizes]
    feeds = {"x": rng.standard_normal(shape).astype(np.float32)}
    path = tmp_path / "samples.npz"
    np.savez(path, **feeds)
    program = compiled(model, path)
    found = operators(program)
    assert found == ["QuantizeLinear", *behind]
    exact = run(sambac.compile(model), feeds)
    assert error(run(program, feeds), exact) < 0.03
    monkeypatch.setattr(image, "host_features", lambda tuning: frozenset())
    assert error(run(program, feeds), exact) < 0.03


def test_samples_that_the_model_does_not_take(tmp_path: Path) -> None:
    from benchmarks.models.transformers import Shape, gpt, token_inputs

    shape = Shape(layers=1, hidden=64, heads=2, length=8, vocabulary=100)
    model = gpt(shape)
    path = tmp_path / "ids.npz"
    np.savez(path, **{name: ids + 1000 for name, ids in token_inputs(model, shape).items()})
    with pytest.raises(sambac.CompileError, match="does not run on these samples"):
        compiled(model, path)


def test_times_count_bytes_at_the_rate_of_bfloat16(samples: Path) -> None:
    assert "no rate of products of bytes" in " ".join(compiled(network(), samples).warnings)


def digits() -> tuple[nn.Module, np.ndarray, np.ndarray]:
    """Return a network that has learned, and pictures that it has not seen with their classes."""
    data = load_digits()
    pictures = (data.images[:, None] / 16).astype(np.float32)
    x, y = torch.from_numpy(pictures[:1400]), torch.from_numpy(data.target[:1400])
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(512, 64), nn.GELU(), nn.Linear(64, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(module.parameters(), 3e-3)
    for _ in range(6):
        for part in torch.randperm(1400).split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x[part]), y[part]).backward()
            optimizer.step()
    return module.eval(), pictures[1400:], data.target[1400:]


def test_digits_are_still_read(tmp_path: Path) -> None:
    module, pictures, classes = digits()
    path = tmp_path / "pictures.npz"
    plain = sambac.compile(module, inputs=(torch.from_numpy(pictures),))
    (name,) = (port.name for port in plain.graphs[0].inputs)
    np.savez(path, **{name: pictures})

    def accuracy(program: pef.Program) -> float:
        (logits,) = run(program, {name: pictures}).values()
        return float(np.mean(logits.argmax(1) == classes))

    exact = accuracy(plain)
    assert exact > 0.93
    for precision in ("int8", "int8-weights", "int4-weights"):
        chosen = sambac.CompileOptions(precision=precision, calibrate=path)  # type: ignore[arg-type]
        program = sambac.compile(module, chosen, inputs=(torch.from_numpy(pictures),))
        assert len(rows(program)) == (4 if precision == "int8" else 2)
        assert accuracy(program) >= exact - 0.01, precision


def refused(folder: Path, **arrays: np.ndarray) -> str:
    path = folder / "wrong.npz"
    np.savez(path, **arrays)
    with pytest.raises(sambac.CompileError) as raised:
        compiled(network(), path)
    return str(raised.value)


def test_samples_that_do_not_fit(tmp_path: Path) -> None:
    image_ = np.zeros((1, 4, 12, 12), np.float32)
    assert "there is no array 'x'" in refused(tmp_path)
    assert "'z' is no input of the model" in refused(tmp_path, x=image_, z=image_)
    assert "'x' is float64, and the input float32" in refused(tmp_path, x=image_.astype(float))
    assert "'x' is 4x12, and the input 1x4x12x12" in refused(tmp_path, x=image_[0, :, 0])
    assert "'x' is empty" in refused(tmp_path, x=image_[:0])


@pytest.mark.parametrize("write", [lambda p: p.write_bytes(b"no zip"), lambda p: None])
def test_files_that_cannot_be_read(tmp_path: Path, write: Callable[[Path], object]) -> None:
    path = tmp_path / "samples.npz"
    write(path)
    with pytest.raises(sambac.CompileError, match="cannot read "):
        compiled(network(), path)


def test_without_samples_convolutions_stay(samples: Path) -> None:
    program = sambac.compile(network(), sambac.CompileOptions(precision="int8"))
    assert "in float32: 3 convolutions, as without calibrate" in " ".join(program.warnings)
    assert "QLinearConv" not in operators(program)


def test_what_is_said_of_one_of_several_graphs_names_it() -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> {} (float[4] x) => (float[4] y) {{ y = {} (x) }}'
    )
    small = [onnx.parser.parse_model(text.format(name, name)) for name in ("Relu", "Abs")]
    models = {"image": network(), "rectify": small[0], "size": small[1]}
    program = sambac.compile_graphs(
        [sambac.GraphSource(name, model) for name, model in models.items()],
        sambac.CompileOptions(precision="int8"),
    )
    image_, rectify, size = (
        next(line for line in program.warnings if line.startswith(f"{name}: ")) for name in models
    )
    assert "in float32: 3 convolutions" in image_
    assert rectify.partition(": ")[2] == size.partition(": ")[2]
    assert "there is no layer to quantise" in size


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"calibrate": "x.npz"}, "is of use with a precision of int8"),
        ({"precision": "int8", "observer": "entropy"}, "of use with calibrate"),
        ({"precision": "int8", "max_error": 0.1}, "of use with calibrate"),
        ({"precision": "int8", "expect": "x.npz"}, "of use with calibrate"),
        ({"precision": "int8", "calibrate": "x", "observer": "mean"}, "There is no observer"),
        ({"precision": "int8", "calibrate": "x", "max_error": 0.0}, "above 0"),
        (
            {"precision": "int4-weights", "calibrate": "x", "observer": "entropy"},
            "finds ranges of data",
        ),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, object], words: str) -> None:
    with pytest.raises(sambac.CompileError, match=words):
        sambac.CompileOptions(**options)  # type: ignore[arg-type]
