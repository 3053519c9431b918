"""What importing a package loads: running needs no compiler, and nothing here needs torch."""

from __future__ import annotations

import re
import subprocess
import sys

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
def test_compiling_onnx_loads_no_torch(module: str) -> None:
    loaded = _imported_by(module)
    assert module.partition(".")[0] in loaded
    assert "torch" not in loaded
