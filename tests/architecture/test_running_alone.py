"""A program runs where the compiler's libraries are not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import sambac

_ABSENT = ("sambac", "onnx", "onnx_ir", "onnxscript", "networkx", "yaml", "torch", "ml_dtypes")

# Refuses the modules before anything is imported, as if they were not there.
_RUN = f"""
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {_ABSENT}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
from samba_cli.sambarun import main
main()
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A PEF that doubles a vector of four numbers."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"], "double")],
        "double",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "double.pef"
    sambac.compile(model).save(path)
    return path


def test_the_command_needs_no_compiler(program: Path, tmp_path: Path) -> None:
    output = tmp_path / "y.npz"
    arguments = [str(program), "--input", "x=ones", "--output", str(output)]
    command = [sys.executable, "-c", _RUN, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with np.load(output) as results:
        np.testing.assert_array_equal(results["y"], np.full(4, 2, np.float32))


def test_verify_says_that_it_leaves_the_plans_out(program: Path) -> None:
    code = _RUN.replace("samba_cli.sambarun", "samba_cli.sambac")
    command = [sys.executable, "-c", code, "verify", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "\n  memory   lifetimes and addresses of " in done.stdout
    assert (
        "\n  plans    not checked: that needs libraries of the compiler, and sambac " in done.stdout
    )


def test_the_modules_are_really_refused() -> None:
    """Otherwise the test above would pass for a command that needs them."""
    code = _RUN.replace("from samba_cli.sambarun import main\nmain()", "import onnx")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "No module named 'onnx'" in done.stderr


@pytest.mark.parametrize(
    "words",
    [("compile", "net.onnx"), ("extract", "double.pef", "--section", "0", "-o", "s.onnx")],
    ids=" ".join,
)
def test_what_needs_the_compiler_says_what_to_install(
    program: Path, words: tuple[str, ...]
) -> None:
    program.with_name("net.onnx").write_bytes(b"")
    code = _RUN.replace("samba_cli.sambarun", "samba_cli.sambac")
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=program.parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: this needs libraries of the compiler, and ")
    assert "Install them with pip install onnx onnx-ir " in done.stderr


@pytest.mark.parametrize("verb", ["inspect", "diff"])
def test_looking_into_files_needs_no_compiler(program: Path, verb: str) -> None:
    code = _RUN.replace("samba_cli.sambarun", "samba_cli.sambac")
    files = [str(program)] * (2 if verb == "diff" else 1)
    command = [sys.executable, "-c", code, verb, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("call", ["compile('net.onnx')", "compile_graphs([])"])
def test_compiling_from_python_says_what_to_install(call: str) -> None:
    kept = _RUN.replace(repr("sambac"), repr("torchvision")).partition("from samba_cli")[0]
    code = (
        f"{kept}import sambac\ntry:\n    sambac.{call}\nexcept sambac.CompileError as e: print(e)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("this needs libraries of the compiler, and ")
    assert "Install them with pip install onnx onnx-ir " in done.stdout
