"""Ends of processes, each in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from forked import End, Forks
from together import Job

_HEAD = """
import atexit, sys
from sambaflow.samba.parallel.exits import atexit_register, use_abexit
atexit.register(print, "python's handler")
atexit_register(print, "first handler")
atexit_register(print, "last handler")
"""
_ENDS = {
    "pass": (0, ""),
    "sys.exit()": (0, ""),
    "sys.exit(7)": (7, ""),
    "sys.exit(2**40 + 3)": (3, ""),
    "sys.exit('no data')": (1, "no data"),
    "1 / 0": (1, "ZeroDivisionError"),
    "raise KeyboardInterrupt": (130, "KeyboardInterrupt"),
}
"""What `main` does: the code with which the process ends, and what it says then."""
_QUIET = "import warnings; warnings.simplefilter('ignore')\n"


@pytest.fixture
def end(forks: Forks, tmp_path: Path) -> Callable[..., End]:
    """How a process ends that runs some code, with words."""
    return lambda code, *words: forks.run(["", *words], tmp_path, _QUIET + code)


@pytest.mark.parametrize("work", _ENDS)
def test_codes_and_handlers(end: Callable[..., End], work: str) -> None:
    code, words = _ENDS[work]
    done = end(f"{_HEAD}\ndef main(text):\n    print(text)\n    {work}\nuse_abexit(main, 'work')")
    assert done.code == code
    assert words in done.err
    assert done.out.splitlines() == ["work", "last handler", "first handler"]


def test_without_abexit_handlers_run_as_pythons(end: Callable[..., End]) -> None:
    done = end(_HEAD)
    assert done.code == 0
    assert set(done.out.splitlines()) == {"python's handler", "first handler", "last handler"}


def test_a_handler_that_fails_stops_no_other_and_is_a_failure(end: Callable[..., End]) -> None:
    done = end(_HEAD + "atexit_register(lambda: 1 / 0)\nuse_abexit(lambda: None)")
    assert done.code == 1
    assert "ZeroDivisionError" in done.err
    assert done.out.splitlines() == ["last handler", "first handler"]


def test_no_thread_is_waited_for(end: Callable[..., End]) -> None:
    thread = "import threading\nthreading.Thread(target=threading.Event().wait).start()\n"
    assert end(_HEAD + thread + "use_abexit(lambda: sys.exit(3))").code == 3


_PEERS = """
import torch, torch.distributed as dist
from sambaflow.samba.parallel.exits import use_abexit

def main():
    dist.init_process_group("gloo")
    value = torch.ones(1)
    dist.all_reduce(value)
    print(value.item())
    if dist.get_rank() == 1:
        raise ValueError("this one fails")
    dist.all_reduce(value)
    print("not reached")

use_abexit(main)
"""


def test_processes_that_train_together_end_together(
    launch: Callable[..., Job], tmp_path: Path
) -> None:
    job = launch(tmp_path, *[[""]] * 2, code=_QUIET + _PEERS)
    assert job.codes == (1, 1), job
    assert "this one fails" in job.said[1], job
    for said in job.said:
        assert said.startswith("2.0\n"), job
        assert "not reached" not in said, job


_ALONE = """
import sys, types, torch.distributed as dist
import sambaflow.samba as samba

mpi = types.SimpleNamespace(Is_initialized=lambda: True, Is_finalized=lambda: False)
mpi.COMM_WORLD = types.SimpleNamespace(Abort=lambda code: print("MPI ends all with", code))
sys.modules["mpi4py.MPI"] = mpi

def main(store, code):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    samba.session.atexit_register(lambda: print("the group is there:", dist.is_initialized()))
    leave = dist.destroy_process_group
    dist.destroy_process_group = lambda: (leave(), print("the group is left"))
    sys.exit(code)

samba.session.use_abexit(main, sys.argv[1], code=int(sys.argv[2]))
"""


@pytest.mark.parametrize(("code", "last"), [(0, "the group is left"), (3, "MPI ends all with 3")])
def test_who_succeeds_leaves_the_group_and_who_fails_ends_the_others(
    code: int, last: str, end: Callable[..., End], tmp_path: Path
) -> None:
    """By the session's own methods, with an MPI that is played."""
    done = end(_ALONE, str(tmp_path / "store"), str(code))
    assert done.code == code, done.err
    assert done.out.splitlines() == ["the group is there: True", last]
