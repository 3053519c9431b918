"""`sambac tune` and `--tuning` for recurrent layers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser
from tuning_files import formulations, written

import sambarun as runtime
from sambac.ops.gradients.choice_points import CHOICE_POINTS
from sambac.tuning_file import read_tuning

_RECURRENT = """
<ir_version: 10, opset_import: ["" : 23]>
g (float[4,3,5] x) => (float loss)
<float[DIRECTIONS,8,5] w = {W}, float[DIRECTIONS,8,2] r = {R}>
{
  y = LSTM <hidden_size = 2, direction = "DIRECTION"> (x, w, r)
  s = Mul (y, y)
  loss = ReduceMean <keepdims = 0> (s)
}
"""
_RECURRENT_ENTRY = """
[[choice]]
operator = "LSTM layer"
dtype = "float32"
sizes = "sequence 4x3x5, hidden 2, directions 2"
chosen = "CHOSEN"
"""


def layer(folder: Path, directions: int) -> Path:
    """An LSTM, and a loss."""

    def weights(count: int) -> str:
        return ", ".join(f"{0.1 * (n % 7 - 3):.1f}" for n in range(directions * count))

    text = _RECURRENT.replace("DIRECTIONS", str(directions))
    text = text.replace("DIRECTION", "bidirectional" if directions == 2 else "forward")
    path = folder / f"layer{directions}.onnx"
    onnx.save(
        parser.parse_model(text.replace("W}", weights(40) + "}").replace("R}", weights(16) + "}")),
        path,
    )
    return path


def test_recurrent_layers_are_a_choice(sambac: Callable, tmp_path: Path) -> None:
    model, out = layer(tmp_path, 2), tmp_path / "net.pef"
    words = (
        "tune",
        model,
        "--train",
        "-o",
        tmp_path / "t.toml",
        "--threads",
        "1",
        "--seconds",
        "0.1",
    )
    assert sambac(*words).code == 0
    (measured,) = read_tuning(tmp_path / "t.toml").choices
    names = [form.name for form in CHOICE_POINTS["LSTM layer"].forms]
    assert measured.question.sizes in _RECURRENT_ENTRY
    assert set(measured.times) <= set(names)
    x = np.random.default_rng(0).standard_normal((4, 3, 5), dtype=np.float32)
    gradients = []
    for name in names:
        path = written(tmp_path, "version = 1" + _RECURRENT_ENTRY.replace("CHOSEN", name))
        assert sambac("compile", model, "--train", "--tuning", path, "-o", out).code == 0
        assert formulations(out) == {"LSTM layer": (name, "measurement")}
        with runtime.load(out) as executable:
            executable.run({"x": x}, section_types="FWD", train=True)
            gradients.append(executable.run({"x": x}, section_types="BCKWD")["r__grad"])
    for found in gradients[1:]:
        np.testing.assert_allclose(found, gradients[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ("sequence 4x3x5, hidden 2", "'both directions at once' does not fit; choose 'columns' or"),
        (
            "sequence 4x3x5, hidden 2, directions 3",
            "its sizes are not those of a sequence, its hid",
        ),
        ("sequence 4x3, hidden 2, directions 2", "its sizes are not those of a sequence, its hid"),
        ("sequence 4x3x5", "its sizes are not those of a sequence, its hid"),
        ("sequence 0x3x5, hidden 2", "a size is 0"),
        ("image 4x3x5, hidden 2", "'image' is not known"),
    ],
)
def test_sizes_that_no_layer_has_are_a_sentence(
    sizes: str, said: str, sambac: Callable, tmp_path: Path
) -> None:
    entry = _RECURRENT_ENTRY.replace("CHOSEN", "both directions at once")
    entry = entry.replace("sequence 4x3x5, hidden 2, directions 2", sizes)
    path = written(tmp_path, "version = 1" + entry)
    result = sambac("compile", layer(tmp_path, 2), "--train", "--tuning", path)
    assert result.code == 2
    assert said in result.err


def test_layers_that_keep_nothing_are_no_choice(sambac: Callable, tmp_path: Path) -> None:
    """In an inference program, and where gates are computed anew."""
    model, out = layer(tmp_path, 1), tmp_path / "net.pef"
    for words in ((), ("--train", "--recompute")):
        assert sambac("compile", model, *words, "-o", out).code == 0
        assert formulations(out) == {}
        told = sambac("tune", model, *words, "-o", tmp_path / "none.toml").out
        assert "choices in convolutions, in LSTMs and GRUs that keep their gates" in told


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("LSTM", "'LSTM' is written as other operators: of it were chosen"),
        ("operator:LSTM", "for the LSTM layer (sequence 4x3x5, hidden 2, directions 2)"),
        ("y", "there is no graph, section, operator or symbol 'y'; called after it: "),
        ("section", "'section'; it has"),
    ],
)
def test_explanations_say_what_became_of_a_layer(
    name: str, said: str, sambac: Callable, tmp_path: Path
) -> None:
    model, out = layer(tmp_path, 2), tmp_path / "net.pef"
    assert sambac("compile", model, "--train", "-o", out).code == 0
    result = sambac("explain", out, name)
    assert result.code == 2
    assert said in result.err
