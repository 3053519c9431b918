"""Where processes meet, what their programs must have in common, and who is blamed for failures."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist
from samba_models import batch, classifier, sgd
from together import reserved_port
from torch.distributed import HashStore

import pef
import sambaflow.samba as samba
from sambahost import program_match, rendezvous
from sambahost.errors import HostError
from sambahost.leaving import leave_group


@pytest.fixture
def launched(monkeypatch):
    """This process as one of three that meet at a port where nobody listens."""
    with reserved_port() as port:
        monkeypatch.setenv("WORLD_SIZE", "3")
        monkeypatch.setenv("MASTER_ADDR", "localhost")
        monkeypatch.setenv("MASTER_PORT", str(port))
        monkeypatch.setenv("CCL_TIMEOUT", "1")
        yield port


def test_who_does_not_come_is_told(launched, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(HostError, match=r"process 0 of 3 has waited 1 .* for processes 1, 2, whi"):
        rendezvous.join()
    assert not dist.is_initialized()


def test_the_first_that_does_not_come_is_told(launched, monkeypatch):
    monkeypatch.setenv("RANK", "2")
    with pytest.raises(HostError, match=rf"process 2 finds process 0 not at localhost:{launched}"):
        rendezvous.join()


def test_a_port_that_is_taken_is_told(launched, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    with socket.socket() as other:
        other.bind(("localhost", 0))
        other.listen()
        monkeypatch.setenv("MASTER_PORT", str(other.getsockname()[1]))
        with pytest.raises(HostError, match=r"cannot listen at localhost:\d+, .* a free port"):
            rendezvous.join()


@pytest.fixture
def roll_call(monkeypatch):
    """Process 0 of four, in which a collective fails; the others leave notes in a store."""
    store = HashStore()
    monkeypatch.setattr(rendezvous, "_store_of_group", lambda: store)
    monkeypatch.setattr(rendezvous, "_ROLL_CALL", 0.0)
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr(dist, "get_world_size", lambda: 4)

    def called(notes, places):
        for rank, note in notes.items():
            store.set(f"host/failed/{rank}", note)
        for rank, place in places.items():
            store.set(f"host/here/{rank}", place)
        with pytest.raises(HostError) as caught, rendezvous.together("the sum"):
            raise RuntimeError("[file.cc:3] Connection closed. This is typically an accident")
        return str(caught.value)

    return called


def ended_process():
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def test_a_process_of_this_host_that_has_ended_is_blamed(roll_call):
    mine = rendezvous._place()
    gone = f"{mine.rpartition(' ')[0]} {ended_process()}"
    said = roll_call({}, {1: mine, 2: gone, 3: mine})
    assert said == (
        "the sum failed in process 0: process 2 has ended; what it printed says why "
        "(Connection closed)"
    )


def test_a_process_that_nobody_has_asked_how_it_ended_has_ended(roll_call):
    if not os.path.exists("/proc/self/stat"):
        pytest.skip("a system without /proc")
    mine = rendezvous._place()
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as child:
        child.stdout.read()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        said = roll_call({}, {1: mine, 2: f"{mine.rpartition(' ')[0]} {child.pid}", 3: mine})
    assert "process 2 has ended;" in said


def test_processes_that_are_silent_are_blamed(roll_call):
    said = roll_call({1: "the sum"}, {2: f"elsewhere {os.getpid()}", 3: rendezvous._place()})
    assert "processes 2, 3 have ended or do not answer; what" in said


def test_processes_that_do_something_else_are_told(roll_call):
    said = roll_call({1: "the sum", 2: "the mean", 3: "the sum"}, {})
    assert "the others did something else, process 2 in the mean (" in said


def test_where_all_fail_alike_the_connection_is_blamed(roll_call):
    said = roll_call(dict.fromkeys((1, 2, 3), "the sum"), {})
    assert "the connection to another process is lost (" in said


class _Pending:
    """A collective that `looks` waits do not see done; then it is, or fails."""

    def __init__(self, looks: int, fails: bool = False) -> None:
        self.looks = looks
        self.fails = fails

    def wait(self, timeout: timedelta) -> None:
        self.looks -= 1
        if self.looks >= 0:
            raise RuntimeError("Operation timed out!")
        if self.fails:
            raise RuntimeError("Connection closed")

    def is_completed(self) -> bool:
        return self.looks < 0


def test_who_is_late_is_waited_for(roll_call):
    work = _Pending(3)
    rendezvous.wait(work)
    assert work.is_completed()


def test_a_collective_that_fails_while_it_is_waited_for_is_told(roll_call):
    with pytest.raises(RuntimeError, match="Connection closed"):
        rendezvous.wait(_Pending(1, fails=True))


def test_who_is_no_neighbour_learns_of_a_failure_from_the_notes(monkeypatch):
    store = HashStore()
    monkeypatch.setattr(rendezvous, "_store_of_group", lambda: store)
    monkeypatch.setattr(dist, "get_world_size", lambda: 4)
    store.set("host/failed/2", "the sum")
    with pytest.raises(RuntimeError, match=r"^process 2 has given up$"):
        rendezvous.wait(_Pending(1000))


def test_who_knows_enough_stays_for_the_others(roll_call, monkeypatch):
    """The store may end with the process that has it."""
    monkeypatch.setattr(rendezvous, "_ROLL_CALL", 60.0)
    mine = rendezvous._place()
    gone = f"{mine.rpartition(' ')[0]} {ended_process()}"
    notes, store = {1: "the sum"}, rendezvous._store_of_group()
    monkeypatch.setattr(rendezvous.time, "sleep", lambda _: store.set("host/failed/3", "the sum"))
    assert "process 2 has ended;" in roll_call(notes, {1: mine, 2: gone, 3: mine})
    assert store.check(["host/failed/3"])


class _Gone:
    def set(self, key, value):
        raise RuntimeError("Broken pipe")


def test_without_the_store_the_process_that_had_it_is_blamed(roll_call, monkeypatch):
    monkeypatch.setattr(rendezvous, "_store_of_group", _Gone)
    assert "failed in process 0: process 0 has ended;" in roll_call({}, {})


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    """What processes tell each other of PEFs that differ in one thing."""
    folder = str(tmp_path_factory.mktemp("out"))

    def told(name, model, optimizer, **config):
        config = {"output_folder": folder, "data_parallel": True, **config}
        path = samba.session.compile(model, batch(), optimizer, name=name, config_dict=config)
        with pef.open(path) as file:
            return program_match.facts(file.program)

    model = classifier(0.0)
    other = classifier(0.0)
    other.norm = type(other.norm)(3, eps=0.5)
    clipping = samba.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, max_grad_norm=1.0)
    return {
        "first": told("first", model, sgd(model)),
        "again": told("again", model, sgd(model)),
        "alone": told("alone", model, sgd(model), data_parallel=False),
        "model": told("model", samba.from_torch_model(other), sgd(other)),
        "options": told("options", model, clipping),
    }


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["first", "again", "first"], ""),
        (
            ["first", "alone", "alone"],
            r"^the PEF of processes 1, 2 was compiled for one process$",
        ),
        (["alone", "alone"], r"^the PEF was compiled for one process$"),
        (
            ["first", "first", "model"],
            r"^process 2 runs a PEF of another model than process 0; giv",
        ),
        (
            ["first", "options", "model"],
            r"^process 1 runs a PEF that .* process 0 \(max_grad_norm\); .*; process 2 .* another",
        ),
    ],
    ids=["alike", "some for one process", "all for one process", "model", "options"],
)
def test_programs_that_do_not_fit_together(facts, monkeypatch, names, says):
    def gathered(into, mine, group):
        into[:] = [facts[name] for name in names]

    monkeypatch.setattr(dist, "all_gather_object", gathered)
    monkeypatch.setattr(dist, "get_world_size", lambda group: len(names))
    monkeypatch.setattr(program_match, "facts", lambda program: None)
    if not says:
        program_match.require_programs_match(None, None)
        return
    with pytest.raises(HostError, match=says):
        program_match.require_programs_match(None, None)


def test_patience_is_that_of_the_environment(monkeypatch):
    monkeypatch.setenv("CCL_TIMEOUT", "7")
    assert rendezvous.patience() == timedelta(seconds=7)
    monkeypatch.delenv("CCL_TIMEOUT")
    assert rendezvous.patience() == timedelta(minutes=30)
    for text in ("5m", "1.5", "-1", "9" * 5000):
        monkeypatch.setenv("CCL_TIMEOUT", text)
        with pytest.raises(HostError, match=r"CCL_TIMEOUT is .*a whole number from 0 to "):
            rendezvous.patience()


def test_a_group_is_left_in_order(tmp_path: Path) -> None:
    store = f"file://{tmp_path / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    leave_group()
    assert not dist.is_initialized()
    leave_group()


def test_a_group_is_left_once_python_ends() -> None:
    code = (
        "import atexit, torch.distributed as dist\n"
        "from sambahost.leaving import leave_group_at_exit\n"
        "atexit.register(lambda: print('there', dist.is_initialized()))\n"  # runs last
        "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
        "leave_group_at_exit(), leave_group_at_exit()\n"
        "print('there', dist.is_initialized())\n"
        "raise SystemExit(3)"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.splitlines()) == (3, ["there True", "there False"])
    assert done.stderr == ""
