"""Ends of processes, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from together import launch

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
_CASES = {
    **{
        work: f"def main(text):\n    print(text)\n    {work}\nuse_abexit(main, 'work')"
        for work in _ENDS
    },
    "no abexit": "",
    "a handler fails": "atexit_register(lambda: 1 / 0)\nuse_abexit(lambda: None)",
    "a thread waits": "import threading\nthreading.Thread(target=threading.Event().wait).start()\n"
    "use_abexit(lambda: sys.exit(3))",
}

# One process loads torch and forks for each case; a child ends where the script does, as any.
_FORKS = """
import json, os, signal, sys
import sambaflow.samba.parallel.exits
head, folder, cases = json.loads(sys.argv[1])
ends, own = [], None
for number, code in enumerate(cases):
    child = os.fork()
    if not child:
        own = code
        break
    ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
if own is None:
    print(json.dumps(ends))
else:
    signal.alarm(60)  # a child that hangs is killed, which is another code
    for descriptor in (1, 2):
        flags = os.O_WRONLY | os.O_CREAT
        os.dup2(os.open(f"{folder}/{number}.{descriptor}", flags, 0o600), descriptor)
    exec(head + own, {"__name__": "__main__"})
"""


class End(NamedTuple):
    """How a process ended: its exit code, and what it wrote."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> dict[str, End]:
    """The ends of all cases, by what they do."""
    folder = tmp_path_factory.mktemp("ends")
    asked = json.dumps([_HEAD, str(folder), list(_CASES.values())])
    done = subprocess.run(
        [sys.executable, "-c", _FORKS, asked],
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
        env={key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"},
    )
    codes = json.loads(done.stdout)
    return {
        name: End(code, *((folder / f"{number}.{of}").read_text() for of in (1, 2)))
        for number, (name, code) in enumerate(zip(_CASES, codes, strict=True))
    }


@pytest.mark.parametrize("work", _ENDS)
def test_codes_and_handlers(ends: dict[str, End], work: str) -> None:
    code, words = _ENDS[work]
    done = ends[work]
    assert done.code == code
    assert words in done.err
    assert done.out.splitlines() == ["work", "last handler", "first handler"]


def test_without_abexit_handlers_run_as_pythons(ends: dict[str, End]) -> None:
    done = ends["no abexit"]
    assert done.code == 0
    assert set(done.out.splitlines()) == {"python's handler", "first handler", "last handler"}


def test_a_handler_that_fails_stops_no_other_and_is_a_failure(ends: dict[str, End]) -> None:
    done = ends["a handler fails"]
    assert done.code == 1
    assert "ZeroDivisionError" in done.err
    assert done.out.splitlines() == ["last handler", "first handler"]


def test_no_thread_is_waited_for(ends: dict[str, End]) -> None:
    assert ends["a thread waits"].code == 3


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
