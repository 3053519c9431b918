"""A model of more than 2 GiB goes from file to result without ever being in memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

_ROWS, _WIDTH = 9_000_000, 64  # 2.3 GB of float32

# What is no view of a file may take this much: a copy of the weight would be more.
_COMPILE = """
import resource, sys, sambac
resource.setrlimit(resource.RLIMIT_DATA, (1_500_000_000,) * 2)
sambac.compile(sys.argv[1]).save(sys.argv[2])
"""
_RUN = """
import pathlib, re, sys, numpy, sambarun
with sambarun.load(sys.argv[1]) as executable:
    found = executable.run({"ids": numpy.array([0, 8_999_999, 4_500_000])})["rows"]
    status = pathlib.Path("/proc/self/status").read_text()
    assert int(re.search(r"RssAnon:\\s+(\\d+) kB", status)[1]) < 1_000_000, status
assert found.shape == (3, 64), found.shape
assert found[:, 0].tolist() == [1.0, 3.0, 0.0], found[:, 0]
"""


def _model(folder: Path) -> Path:
    """A lookup in a table that lies in a sparse file: row 0 holds ones, the last one threes."""
    row = _WIDTH * 4
    with (folder / "table.bin").open("wb") as file:
        file.write(np.full(_WIDTH, 1, np.float32).tobytes())
        file.seek((_ROWS - 1) * row)
        file.write(np.full(_WIDTH, 3, np.float32).tobytes())
    table = TensorProto(
        name="table", data_type=TensorProto.FLOAT, dims=[_ROWS, _WIDTH], data_location=1
    )
    for key, value in (("location", "table.bin"), ("offset", "0"), ("length", str(_ROWS * row))):
        table.external_data.add(key=key, value=value)
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "ids"], ["rows"])],
        "lookup",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [3])],
        [helper.make_tensor_value_info("rows", TensorProto.FLOAT, [3, _WIDTH])],
        [table],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "lookup.onnx"
    path.write_bytes(model.SerializeToString())
    onnx.checker.check_model(str(path))
    return path


def _run(code: str, *arguments: Path) -> None:
    """Run `code` in a process of its own."""
    subprocess.run([sys.executable, "-c", code, *map(str, arguments)], check=True)


@pytest.mark.long
def test_more_than_two_gigabytes(tmp_path: Path) -> None:
    pef_path = tmp_path / "lookup.pef"
    _run(_COMPILE, _model(tmp_path), pef_path)
    assert pef_path.stat().st_size > 2**31
    _run(_RUN, pef_path)
    pef_path.unlink()
