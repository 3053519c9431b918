"""A damaged file never gives another result: a run refuses it, or did not need the damaged part."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import pef
import sambac
import sambarun

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(1, 8)


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A PEF of two sections with weights in the file."""
    rng = np.random.default_rng(0)
    shapes = {"w1": (8, 64), "w2": (64, 4)}
    weights = [
        numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("MatMul", ["a", "w2"], ["y"]),
    ]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])]
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])]
    graph = helper.make_graph(nodes, "g", values, results, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path = tmp_path_factory.mktemp("intact") / "intact.pef"
    sambac.compile(model, options=sambac.CompileOptions(level="O0")).save(path)
    return path.read_bytes()


def result(path: Path) -> np.ndarray | None:
    """The output, or None if the file is refused."""
    try:
        with sambarun.load(path, threads=1) as executable:
            return executable.run({"x": X})["y"]
    except (pef.PefError, sambarun.RunError):
        return None


def check(content: bytes, path: Path, expected: np.ndarray) -> bool:
    """Run `content`; tell whether it was refused."""
    path.write_bytes(content)
    y = result(path)
    if y is not None:
        np.testing.assert_array_equal(y, expected)
    return y is None


@pytest.fixture
def expected(intact: bytes, tmp_path: Path) -> np.ndarray:
    path = tmp_path / "expected.pef"
    path.write_bytes(intact)
    y = result(path)
    assert y is not None
    return y


@pytest.mark.parametrize("seed", range(4))
def test_changed_bytes(intact: bytes, tmp_path: Path, expected: np.ndarray, seed: int) -> None:
    rng = random.Random(seed)
    refused = 0
    for _ in range(60):
        content = bytearray(intact)
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        refused += check(bytes(content), tmp_path / "changed.pef", expected)
    assert refused > 20


def test_truncated_files(intact: bytes, tmp_path: Path, expected: np.ndarray) -> None:
    rng = random.Random(0)
    sizes = [0, 1, len(intact) - 1, *(rng.randrange(len(intact)) for _ in range(40))]
    assert all(check(intact[:size], tmp_path / "short.pef", expected) for size in sizes)


@pytest.mark.long
def test_every_byte(intact: bytes, tmp_path: Path, expected: np.ndarray) -> None:
    path = tmp_path / "changed.pef"
    for position in range(len(intact)):
        content = bytearray(intact)
        content[position] ^= 0xFF
        check(bytes(content), path, expected)
