"""Ends of processes, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from together import launch

from sambaflow.samba.parallel import exits

_HEAD = f"""
import atexit, runpy, sys
# Alone: all of torch comes with its package.
exits = runpy.run_path({exits.__file__!r})
atexit_register, use_abexit = exits["atexit_register"], exits["use_abexit"]
atexit.register(print, "python's handler")
atexit_register(print, "first handler")
atexit_register(print, "last handler")
"""


def _run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"},
    )


@pytest.mark.parametrize(
    ("work", "code", "words"),
    [
        ("pass", 0, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(7)", 7, ""),
        ("sys.exit(2**40 + 3)", 3, ""),
        ("sys.exit('no data')", 1, "no data"),
        ("1 / 0", 1, "ZeroDivisionError"),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt"),
    ],
)
def test_codes_and_handlers(work: str, code: int, words: str) -> None:
    done = _run(f"{_HEAD}\ndef main(text):\n    print(text)\n    {work}\nuse_abexit(main, 'work')")
    assert done.returncode == code
    assert words in done.stderr
    assert done.stdout.splitlines() == ["work", "last handler", "first handler"]


def test_without_abexit_handlers_run_as_pythons() -> None:
    done = _run(_HEAD)
    assert done.returncode == 0
    assert set(done.stdout.splitlines()) == {"python's handler", "first handler", "last handler"}


def test_a_handler_that_fails_stops_no_other_and_is_a_failure() -> None:
    done = _run(f"{_HEAD}\natexit_register(lambda: 1 / 0)\nuse_abexit(lambda: None)")
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert done.stdout.splitlines() == ["last handler", "first handler"]


def test_no_thread_is_waited_for() -> None:
    thread = "import threading\nthreading.Thread(target=threading.Event().wait).start()"
    assert _run(f"{_HEAD}\n{thread}\nuse_abexit(lambda: sys.exit(3))").returncode == 3


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


def test_processes_that_train_together_end_together(tmp_path: Path) -> None:
    job = launch(tmp_path, *[["-W", "ignore", "-c", _PEERS]] * 2)
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
    code: int, last: str, tmp_path: Path
) -> None:
    """By the session's own methods, with an MPI that is played."""
    command = [sys.executable, "-W", "ignore", "-c", _ALONE, str(tmp_path / "store"), str(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    assert done.stdout.splitlines() == ["the group is there: True", last]
