"""Whose fault it is that a stage stumbles: the compiler's, unless onnxruntime refuses the model."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

import sambac
from sambac.frontend import judging
from sambac.options import CompileOptions

OPTIONS = CompileOptions()
SOUND = """<ir_version: 8, opset_import: ["": 17]>
net (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }"""
UNSOUND = SOUND.replace("Relu(x)", "Concat<axis = 5>(x, x)")
# Nothing but a run shows that the operands do not fit.
FAILING = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
net (float[1, 2, 4] x, float[1, 2, 2] z, float[4] g) => (float[1, 2, 4] y) {
  y = com.microsoft.SkipLayerNormalization<epsilon: float = 0.001>(x, z, g) }"""
# No kernel, but sound all the same.
UNKNOWN = """<ir_version: 10, opset_import: ["": 22]>
net (bfloat16[2, 3] x) => (bfloat16[2, 3] y) { y = Acosh(x) }"""


def stumble(*texts: str) -> None:
    models = [onnx.parser.parse_model(text) for text in texts]
    with judging(*((model, OPTIONS) for model in models)):
        raise KeyError("a stage has stumbled")


@pytest.mark.parametrize("texts", [(UNSOUND,), (FAILING,), (SOUND, UNSOUND)])
def test_unsound_models_are_to_blame(texts: tuple[str, ...]) -> None:
    with pytest.raises(sambac.CompileError, match="net is not a sound model, onnxruntime refuses"):
        stumble(*texts)


@pytest.mark.parametrize("texts", [(SOUND,), (SOUND, SOUND), (UNKNOWN,)])
def test_sound_models_are_not(texts: tuple[str, ...]) -> None:
    with pytest.raises(KeyError, match="a stage has stumbled"):
        stumble(*texts)


@pytest.mark.parametrize("error", [sambac.CompileError, OSError, MemoryError, KeyboardInterrupt])
def test_errors_that_need_no_judge(error: type[BaseException]) -> None:
    with pytest.raises(error), judging((onnx.parser.parse_model(UNSOUND), OPTIONS)):
        raise error


def test_a_model_that_cannot_be_read_again(tmp_path: Path) -> None:
    with pytest.raises(KeyError), judging((tmp_path / "none.onnx", OPTIONS)):
        raise KeyError
