"""The example of handwritten digits: compiled, trained and evaluated by the commands alone."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

_EXAMPLE = Path(__file__).parents[2] / "examples" / "digits"
_PAGE = Path(__file__).parents[2] / "docs" / "training.md"
_ACCURACY = 97.0

# Runs a command and says at its end which modules it has loaded: the commands leave by these two.
_WATCHED = """
import os, sys

def telling(leave):
    def tell(code=0):
        print("loaded:", *sorted(sys.modules), file=sys.stderr, flush=True)
        leave(code)
    return tell

os._exit, sys.exit = telling(os._exit), telling(sys.exit)
from samba_cli.{command} import main
main()
"""


def _python(*words: object) -> str:
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _watched(command: str, *words: object) -> tuple[str, set[str]]:
    """Run a command; return what it says and the packages that it has loaded."""
    code = [sys.executable, "-c", _WATCHED.format(command=command)]
    done = subprocess.run([*code, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    modules = done.stderr.rpartition("loaded: ")[2].split()
    return done.stdout, {name.partition(".")[0] for name in modules}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.npz and test.npz."""
    path = tmp_path_factory.mktemp("digits")
    _python(_EXAMPLE / "prepare.py", path)
    return path


def _accuracy(told: str) -> float:
    return float(re.search(r"accuracy ([\d.]+)%", told)[1])


def test_a_torch_module_learns_without_torch(folder: Path) -> None:
    words = ("--train", "--optimizer", "adamw:lr=1e-3", "-o", folder / "cnn.pef")
    _, loaded = _watched("sambac", "compile", f"{_EXAMPLE / 'model.py'}:digits", *words)
    assert "torch" in loaded
    train = ("--steps", 176, "--data", folder / "train.npz", "--shuffle", 0)
    files = ("--log-csv", folder / "loss.csv", "--save", folder / "cnn.safetensors")
    test = ("--eval", "--data", folder / "test.npz")
    told, loaded = _watched("sambarun", folder / "cnn.pef", *train, *files, *test)
    assert _accuracy(told) >= _ACCURACY
    assert {"sambarun", "numpy"} <= loaded
    assert not loaded & {"torch", "sambac", "onnx", "onnx_ir", "onnxscript", "networkx"}

    later, _ = _watched("sambarun", folder / "cnn.pef", "--load", folder / "cnn.safetensors", *test)
    assert later == told[-len(later) :]
    drawn = _python(_EXAMPLE / "plot.py", folder / "loss.csv", folder / "loss.png")
    assert "4 epochs" in drawn
    assert (folder / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_trains_from_python(folder: Path) -> None:
    _python(_EXAMPLE / "onnx_model.py", folder / "net.onnx")
    words = ("--train", "--loss", "cross_entropy:logits,y", "--optimizer", "adamw:lr=1e-3")
    _watched("sambac", "compile", folder / "net.onnx", *words, "-o", folder / "net.pef")
    blocks = re.findall(
        r"^```python\n(.*?)^```", _PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    (code,) = (block for block in blocks if "train.npz" in block)
    command = [sys.executable, "-c", f"{code}\nprint(cursor, losses)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    assert done.stdout.startswith("Cursor(step=1000, epoch=22, batch=32, shuffle=0) {'loss': ")
    assert (folder / "net.safetensors").exists()


def test_an_onnx_model_learns_and_torch_is_never_loaded(folder: Path) -> None:
    model, target = folder / "mlp.onnx", folder / "mlp.pef"
    _python(_EXAMPLE / "onnx_model.py", model)
    words = ("--train", "--loss", "cross_entropy:logits,y", "--optimizer", "adamw:lr=3e-3")
    _, loaded = _watched("sambac", "compile", model, *words, "-o", target)
    assert "onnx" in loaded
    assert "torch" not in loaded
    train = ("--steps", 880, "--data", folder / "train.npz", "--shuffle", 0)
    told, loaded = _watched("sambarun", target, *train, "--eval", "--data", folder / "test.npz")
    assert _accuracy(told) >= _ACCURACY
    assert "torch" not in loaded
