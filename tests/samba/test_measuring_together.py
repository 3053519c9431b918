"""Processes that measure together: one result, of all of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_WORKER = """
import json, sys
import torch.distributed as dist
from fake_session import traced_linear
rank, store, report = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
model, inputs, session = traced_linear()
sys.modules["sambaflow.samba.session"] = type("module", (), {"session": session})
from sambaflow.samba.utils import measure_performance
found = measure_performance(
    model, inputs, 4, n_iterations=3, data_parallel=True, min_duration=0.02 * rank, json=report
)
print(json.dumps([*found, len(session.runs)]))
dist.destroy_process_group()
"""


def test_throughput_is_that_of_all(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    script = tmp_path / "worker.py"
    script.write_text(_WORKER, "utf-8")
    store, report = tmp_path / "store", tmp_path / "report.json"
    workers = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(store), str(report)],
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": f"{root}:{root / 'tests' / 'support'}", "PATH": ""},
        )
        for rank in range(2)
    ]
    outputs = [worker.communicate(timeout=200)[0].splitlines() for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0]
    first, second = (json.loads(lines[-1]) for lines in outputs)
    assert len(outputs[1]) == 1  # the other process prints nothing but its result
    assert "NOTE: This is the combined throughput for 2 workers" in outputs[0]
    assert first == second  # also how many steps: they stopped together
    assert first[0] * first[1] == pytest.approx(2 * 4)
    assert json.loads(report.read_text("utf-8"))["world_size"] == 2
