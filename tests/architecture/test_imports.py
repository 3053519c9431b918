"""What importing a package loads: running needs no compiler, and nothing here needs torch."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

_COMPILER = {"sambac", "onnx", "onnx_ir", "onnxscript", "networkx", "yaml", "google"}


def _imported_by(module: str) -> set[str]:
    """The top-level names of all modules that importing `module` loads, by -X importtime."""
    command = [sys.executable, "-X", "importtime", "-c", f"import {module}"]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    lines = re.findall(r"^import time:.*\|\s*(\S+)$", report, flags=re.MULTILINE)
    return {name.partition(".")[0] for name in lines}


@pytest.mark.parametrize("module", ["pef", "sambarun", "samba_cli.sambarun"])
def test_running_loads_no_compiler(module: str) -> None:
    loaded = _imported_by(module)
    assert module.partition(".")[0] in loaded
    assert not loaded & (_COMPILER | {"torch"})


@pytest.mark.parametrize("module", ["sambac", "samba_cli.sambac"])
def test_saying_what_to_compile_loads_no_compiler(module: str) -> None:
    loaded = _imported_by(module)
    assert module.partition(".")[0] in loaded
    assert not loaded & ((_COMPILER - {"sambac"}) | {"torch"})


def test_an_application_loads_what_it_needs_when_it_needs_it() -> None:
    """Importing the API takes little more than importing torch."""
    loaded = _imported_by("sambaflow.samba")
    assert "torch" in loaded
    assert not loaded & {"sambac", "sambarun", "onnx", "onnxruntime"}


_COMPILE = """
import sys
import numpy as np
from onnx import TensorProto, helper
import sambac
info = helper.make_tensor_value_info
graph = helper.make_graph(
    [helper.make_node("Relu", ["x"], ["y"])],
    "relu",
    [info("x", TensorProto.FLOAT, [4])],
    [info("y", TensorProto.FLOAT, [4])],
)
opsets = [helper.make_opsetid("", 17)]
sambac.compile(helper.make_model(graph, opset_imports=opsets, ir_version=8))
print(*sorted({"torch", "onnxscript"} & set(sys.modules)))
"""


def test_compiling_an_onnx_model_loads_no_torch_either() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _COMPILE], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


def test_without_torch_its_models_are_refused() -> None:
    code = """
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "torch" else real(name)
import sambac
try:
    sambac.compile("program.pt2")
except sambac.CompileError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (
        "program.pt2: PyTorch models need torch; pip install 'sambaflow[torch]'"
    )


@pytest.mark.parametrize("package", ["sambaflow.samba", "pybuda"])
def test_without_torch_its_packages_say_what_to_install(package: str) -> None:
    code = f"""
import sys
sys.modules["torch"] = None
import {package}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: sambaflow.samba and pybuda need PyTorch, which is not installed; "
        "pip install 'sambaflow[torch]'"
    )
    assert "During handling" not in done.stderr


_ROOTS = (
    "sambaflow",
    "host/sambahost",
    "runtime/sambarun",
    "compiler/sambac",
    "schema/pef",
    "pybuda",
)


def _late_imports(file: Path) -> Iterator[tuple[int, bool]]:
    """Yield the lines of imports inside functions, and whether their reason stands beside them.

    It is a comment behind one of those that stand together, or in front of them.
    """
    text = file.read_text()
    lines = text.splitlines()
    inside = {
        node.lineno
        for function in ast.walk(ast.parse(text))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    told = False
    for number in sorted(inside):
        before = next(at for at in range(number - 1, 0, -1) if lines[at - 1].strip())
        told = "  #" in lines[number - 1] or (
            told if before in inside else lines[before - 1].strip().startswith("#")
        )
        yield number, told


def test_imports_inside_functions_are_few_and_say_why() -> None:
    """Those of the commands are the rule there: `samba_cli` says so once."""
    root = Path(__file__).parents[2]
    found = {
        (name, f"{file.relative_to(root)}:{line}"): told
        for name in _ROOTS
        for file in sorted((root / name).rglob("*.py"))
        for line, told in _late_imports(file)
    }
    assert [place for (_, place), told in found.items() if not told] == []
    of = Counter(name for name, _ in found)
    assert of["runtime/sambarun"] > 5  # else nothing has been looked at
    assert of["sambaflow"] <= 10
