"""Commands as a user runs them, and small models to run them on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from forked import Forks
from onnx import TensorProto, helper, numpy_helper

Run = Callable[..., "Result"]


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def sambac(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `sambac` in this process."""
    from samba_cli.sambac import main

    def run(*arguments: object) -> Result:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["sambac", *map(str, arguments)])
        with pytest.raises(SystemExit) as leave:
            main()
        captured = capsys.readouterr()
        return Result(int(leave.value.code or 0), captured.out, captured.err)

    return run


_SAMBARUN = "from samba_cli.sambarun import main; main()"
_LOADED = (
    "onnxruntime",
    "sambarun",
    "samba_cli.running",
    "samba_cli.training",
    "samba_cli.listing",
)


@pytest.fixture(scope="session")
def _forks() -> Iterator[Forks]:
    forks = Forks(*_LOADED)
    yield forks
    forks.close()


@pytest.fixture
def sambarun(_forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run `sambarun` in a process of its own, which it takes over."""

    def run(*arguments: object) -> Result:
        out, err = (tmp_path_factory.mktemp("sambarun") / name for name in ("out", "err"))
        fork = _forks.start(["sambarun", *map(str, arguments)], out, err, code=_SAMBARUN)
        code = fork.wait(float("inf"))
        assert code is not None
        return Result(code, out.read_text(), err.read_text())

    return run


def _layer(weight: np.ndarray, **graph: object) -> onnx.ModelProto:
    shape = graph.get("shape", [2, 4])
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["h"], name="matmul"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("Softmax", ["r"], ["y"], name="softmax"),
    ]
    proto = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [shape[0], weight.shape[1]])],
        [numpy_helper.from_array(weight, "weight")],
    )
    return helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def weight() -> np.ndarray:
    return np.random.default_rng(7).standard_normal((4, 3)).astype(np.float32)


@pytest.fixture
def model(tmp_path: Path, weight: np.ndarray) -> Path:
    """A linear layer with Relu and Softmax: float32 x[2,4] -> y[2,3]."""
    path = tmp_path / "layer.onnx"
    onnx.save(_layer(weight), path)
    return path


@pytest.fixture
def open_model(tmp_path: Path, weight: np.ndarray) -> Path:
    """The same with a batch size that the model leaves open."""
    path = tmp_path / "open.onnx"
    onnx.save(_layer(weight, shape=["batch", 4]), path)
    return path


@pytest.fixture
def pef_file(sambac: Run, model: Path, tmp_path: Path) -> Path:
    """The model compiled, one operator a section."""
    path = tmp_path / "layer.pef"
    assert sambac("compile", model, "-O0", "-o", path).code == 0
    return path
