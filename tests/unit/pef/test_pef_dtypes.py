"""The table of element types, against ONNX's own."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from pef import dtypes

NUMBERS = sorted(number for _, number in onnx.TensorProto.DataType.items() if number)


def test_the_table_has_what_onnx_has() -> None:
    assert [kind.number for kind in dtypes.ELEMENT_TYPES] == NUMBERS
    assert len(dtypes.BY_NAME) == len(NUMBERS)


@pytest.mark.parametrize("number", NUMBERS)
def test_sizes_and_numpy_types_are_those_of_onnx(number: int) -> None:
    kind, reference = dtypes.BY_NUMBER[number], ir.DataType(number)
    if number == dtypes.STRING:
        assert kind.bits == 0
        return
    assert kind.bits == reference.bitwidth
    assert dtypes.numpy_dtype(number) == reference.numpy()
    assert dtypes.from_numpy(reference.numpy()) == number
    unpacked = np.dtype(kind.storage).itemsize * 8
    assert unpacked == max(kind.bits, 8)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (5, 7), (2, 0, 4)])
def test_nbytes_is_what_onnx_packs(number: int, shape: tuple[int, ...]) -> None:
    if number == dtypes.STRING:
        with pytest.raises(ValueError, match="no fixed size"):
            dtypes.nbytes(number, shape)
        return
    tensor = ir.Tensor(np.zeros(shape, ir.DataType(number).numpy()), dtype=ir.DataType(number))
    assert dtypes.nbytes(number, shape) == len(tensor.tobytes())


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1, "tensor(float)"),
        (11, "tensor(double)"),
        (10, "tensor(float16)"),
        (16, "tensor(bfloat16)"),
        (17, "tensor(float8e4m3fn)"),
        (22, "tensor(int4)"),
        (9, "tensor(bool)"),
        (8, "tensor(string)"),
    ],
)
def test_spellings_are_those_of_onnxruntime(number: int, text: str) -> None:
    assert dtypes.spelling(number) == text
    assert dtypes.parse(text) == number


def test_spellings_are_unique_and_other_types_are_none() -> None:
    assert [dtypes.parse(dtypes.spelling(number)) for number in NUMBERS] == NUMBERS
    assert dtypes.parse("seq(tensor(float))") is None


def test_texts_of_numpy_are_strings() -> None:
    for dtype in (np.dtype("U3"), np.dtype("S3"), np.dtype(object), np.dtypes.StringDType()):
        assert dtypes.from_numpy(dtype) == dtypes.STRING
    assert dtypes.from_numpy(np.dtype("datetime64[s]")) is None


def test_big_endian_is_another_type() -> None:
    assert dtypes.from_numpy(np.dtype(">f4")) is None


def test_without_ml_dtypes_the_raw_bits_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dtypes.numpy_dtype(16) == np.dtype(ml_dtypes.bfloat16)
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    assert dtypes.numpy_dtype(16) == np.dtype(np.uint16)
    assert dtypes.numpy_dtype(22) == np.dtype(np.uint8)
    assert dtypes.numpy_dtype(1) == np.dtype(np.float32)
