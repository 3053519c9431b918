"""Processes that have trained together end without threads that still hold what they reduced."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sambahost.errors import HostError

TRAINED = """
import numpy as np
from pathlib import Path
from sambahost.data_parallel import GroupReducer
from sambahost.leaving import leave_group, stay_at_exit
from sambahost.rendezvous import join

def threads():
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    return sum("runloop" in name for name in names)

reducer, gradient = GroupReducer(), np.full(4, 3, "float32")
join()
"""
ENDS = {
    "in order": "average = reducer.start('x', gradient)\naverage.wait()\nprint(threads() > 0)\n",
    "early": "average = reducer.start('x', gradient)\naverage.wait()\nraise SystemExit\n",
}


def trained(end: str) -> subprocess.CompletedProcess[str]:
    """Let a process join itself, and print at its end whether threads of the group are there."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        port = found.getsockname()[1]
    # Handlers run in reverse order: this one is the first, and runs after that of the group.
    first = "import atexit\natexit.register(lambda: print(threads()))\n"
    job = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    return subprocess.run(
        [sys.executable, "-c", first + TRAINED + end],
        env={**job, "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
@pytest.mark.parametrize("end", ENDS)
def test_a_group_is_left_at_exit(end: str) -> None:
    done = trained(ENDS[end])
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "0"][end == "early" :], done


def test_a_failed_reduction_is_not_waited_for() -> None:
    failing = (
        "from sambahost.rendezvous import together\n"
        "try:\n"
        "    with together('it'):\n"
        "        raise RuntimeError('lost')\n"
        "except Exception as error:\n"
        "    print(type(error).__name__)\n"
    )
    done = trained(failing)
    assert done.stdout.split()[0] == HostError.__name__, done
    assert int(done.stdout.split()[1]) > 0
