"""Processes that begin together go on together."""

from __future__ import annotations

from together import environment, reserved_port, run

_LATE = """
import sys, time
from pathlib import Path
import torch.distributed as dist
from sambaflow.samba.utils.argparser import parse_app_args

connect, connected = dist.init_process_group, Path(sys.argv[1])

def late(*words, **keywords):
    connect(*words, **keywords)
    if dist.get_rank() == 0:
        time.sleep(0.5)
        connected.touch()

dist.init_process_group = late
parse_app_args(["run", "--pef", "m.pef", "--data-parallel"])
print(connected.exists())
"""


def test_nobody_goes_on_while_another_connects(tmp_path):
    """Who ended then would take the connection away from under it."""
    words = ["-c", _LATE, tmp_path / "connected"]
    with reserved_port() as port:
        processes = [
            (words, environment(RANK=str(rank), WORLD_SIZE="2", MASTER_PORT=str(port)))
            for rank in (0, 1)
        ]
        job = run(tmp_path, processes)
    assert job.said == ("True\n", "True\n"), job
