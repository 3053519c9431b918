"""Processes that measure together: one result, of all of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from together import Job

_WORKER = """
import json, sys
import torch.distributed as dist
from fake_session import traced_linear
folder = sys.argv[1]
dist.init_process_group("gloo")
rank = dist.get_rank()
model, inputs, session = traced_linear()
from sambaflow.samba.utils import measure_performance, steps
steps.session = session
found = measure_performance(
    model, inputs, 4, n_iterations=3, data_parallel=True, min_duration=0.02 * rank,
    json=f"{folder}/report.json",
)
with open(f"{folder}/found.{rank}", "w") as file:
    json.dump([*found, len(session.runs)], file)
if rank == 1:  # the other need not measure
    measure_performance(model, inputs, 4, n_iterations=1)
    print("measured alone")
dist.destroy_process_group()
"""


def test_throughput_is_that_of_all(launch: Callable[..., Job], tmp_path: Path) -> None:
    job = launch(tmp_path, *[["", tmp_path]] * 2, code=_WORKER)
    assert job.codes == (0, 0), job
    first, second = (json.loads((tmp_path / f"found.{rank}").read_text("utf-8")) for rank in (0, 1))
    assert "NOTE: This is the combined throughput for 2 workers" in job.said[0].splitlines()
    assert job.said[1] == "measured alone\n"  # the other process prints nothing else
    assert first == second  # also how many steps: they stopped together
    assert first[0] * first[1] == pytest.approx(2 * 4)
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert report["world_size"] == 2
