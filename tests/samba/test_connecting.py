"""Processes that begin together go on together."""

from __future__ import annotations

import pytest
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


def test_nobody_goes_on_while_another_connects(forks, tmp_path):
    """Who ended then would take the connection away from under it."""
    words = ["", tmp_path / "connected"]
    with reserved_port() as port:
        processes = [
            (words, environment(RANK=str(rank), WORLD_SIZE="2", MASTER_PORT=str(port)))
            for rank in (0, 1)
        ]
        job = run(forks, tmp_path, processes, _LATE)
    assert job.said == ("True\n", "True\n"), job


_RANKS = """
from argparse import Namespace
import torch.distributed as dist
import sambaflow.samba as samba
from sambaflow.samba.utils.argparser import parse_app_args
parse_app_args(["compile", "--data-parallel"])
assert not dist.is_initialized()
{}
print(dist.get_rank(), samba.utils.get_world_size())
"""


@pytest.mark.parametrize(
    "call",
    [
        "parse_app_args(['run', '--pef', 'm.pef', '--data-parallel'])",
        "samba.session.setup(Namespace(pef='m.pef', data_parallel=True))",
    ],
)
def test_ranks_are_known_before_a_model_is_traced(launch, call, tmp_path):
    job = launch(tmp_path, [""], code=_RANKS.format(call))
    assert job.codes == (0,), job
    assert job.said == ("0 1\n",)


def test_processes_of_mpirun_meet(forks, tmp_path):
    """Open MPI says who a process is by variables of its own."""
    code = _RANKS.format("parse_app_args(['run', '--pef', 'm.pef', '--data-parallel'])")
    with reserved_port() as port:
        processes = [
            ([""], environment(
                OMPI_COMM_WORLD_RANK=str(rank), OMPI_COMM_WORLD_SIZE="2",
                OMPI_COMM_WORLD_LOCAL_SIZE="2", MASTER_PORT=str(port),
            ))
            for rank in (0, 1)
        ]  # fmt: skip
        job = run(forks, tmp_path, processes, code)
    assert job.codes == (0, 0), job
    assert job.said == ("0 2\n", "1 2\n")
