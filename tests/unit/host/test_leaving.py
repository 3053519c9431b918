"""Processes that have trained together end without threads that still hold what they reduced."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from forked import End, Forks

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


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    """A process that has loaded all but what is tested, whose handlers are the first to run."""
    server = Forks("numpy", "torch.distributed")
    yield server
    server.close()


@pytest.fixture
def trained(forks: Forks, tmp_path: Path) -> Callable[[str], End]:
    """Let a process join itself, and print at its end whether threads of the group are there."""

    def ended(end: str) -> End:
        with socket.socket() as found:
            found.bind(("localhost", 0))
            port = found.getsockname()[1]
        # Handlers run in reverse order: this one is the first, and runs after that of the group.
        first = "import atexit\natexit.register(lambda: print(threads()))\n"
        job = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
        job |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
        return forks.run([""], tmp_path, first + TRAINED + end, job)

    return ended


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
@pytest.mark.parametrize("end", ENDS)
def test_a_group_is_left_at_exit(trained: Callable[[str], End], end: str) -> None:
    done = trained(ENDS[end])
    assert done.code == 0, done.err
    assert done.out.split() == ["True", "0"][end == "early" :], done


def test_a_failed_reduction_is_not_waited_for(trained: Callable[[str], End]) -> None:
    failing = (
        "from sambahost.rendezvous import together\n"
        "try:\n"
        "    with together('it'):\n"
        "        raise RuntimeError('lost')\n"
        "except Exception as error:\n"
        "    print(type(error).__name__)\n"
    )
    done = trained(failing)
    assert done.out.split()[0] == HostError.__name__, done
    assert int(done.out.split()[1]) > 0
