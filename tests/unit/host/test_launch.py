"""Which environment variables say how a process was launched."""

from __future__ import annotations

import os

import pytest

from sambahost.errors import HostError
from sambahost.launch import launched, launched_together, threads_of_share


@pytest.mark.parametrize(
    ("variables", "rank", "size", "address"),
    [
        ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, 1, 2, "a:1"),
        ({"RANK": "1", "WORLD_SIZE": "2"}, 1, 2, "localhost:29500"),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}, 3, 4, "localhost:29500"),
        ({"PMI_RANK": "0", "PMI_SIZE": "2", "MASTER_PORT": "77"}, 0, 2, "localhost:77"),
        (
            {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "8",
             "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "MASTER_ADDR": "node1"}, 1, 2, "node1:29500",
        ),
    ],
    ids=["torchrun", "by hand", "Open MPI", "MPICH", "Slurm"],
)  # fmt: skip
def test_launchers_say_who_a_process_is(variables, rank, size, address):
    found = launched(variables)
    assert (found.rank, found.size, f"{found.host}:{found.port}") == (rank, size, address)


def test_jobs_on_one_host_meet_at_ports_of_their_own():
    def port(job):
        step = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_JOB_ID": job}
        return launched(step).port

    assert port("1") == port("1")
    assert port("1") != port("2")


@pytest.mark.parametrize(
    "variables",
    [
        {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "2(x2)"},
        {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "5", "SLURM_STEP_TASKS_PER_NODE": "3,2"},
        {"PMI_RANK": "0", "PMI_SIZE": "4", "SLURM_STEP_TASKS_PER_NODE": "2(x2)"},
        {"PMI_RANK": "0", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "2"},
    ],
    ids=["srun", "srun, uneven", "srun --mpi=pmi2", "MPICH"],
)
def test_several_hosts_have_to_be_told_where_to_meet(variables):
    with pytest.raises(HostError, match="set MASTER_ADDR to the name of the host of process 0"):
        launched(variables)


def test_a_batch_script_of_slurm_is_alone():
    """It has the variables of its job, but the processes of the job are those that srun starts."""
    variables = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_TASKS_PER_NODE": "2"}
    assert launched(variables) is None
    assert launched_together(variables) == 1


def test_attempts_are_told_apart_on_one_host():
    """Launchers keep their store when they start all again; on several hosts each counts alone."""
    one = {"RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    again = {**one, "TORCHELASTIC_RESTART_COUNT": "1", "MASTER_ADDR": "a"}
    assert [launched(variables).attempt for variables in (one, again)] == [0, 1]
    assert launched({**again, "LOCAL_WORLD_SIZE": "1"}).attempt == 0
    assert launched(one).hosted


def test_processes_of_a_host_share_its_processors(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert threads_of_share({}) is None
    four = {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}
    assert threads_of_share(four) == 2
    assert threads_of_share({**four, "SN_NUM_THREADS": "5"}) == 5
    assert threads_of_share({**four, "LOCAL_WORLD_SIZE": "16", "WORLD_SIZE": "16"}) == 1


@pytest.mark.parametrize("text", ["four", "1.5", "-4", "4x", "1e3", " 4", "99999999", "9" * 5000])
def test_what_users_set_to_no_number_is_refused(text: str) -> None:
    """A part of it was taken for the number, or nothing."""
    with pytest.raises(HostError, match=r"SN_NUM_THREADS is .*a whole number from 0 to "):
        threads_of_share({"SN_NUM_THREADS": text})
    with pytest.raises(HostError, match=r"MASTER_PORT is .*a whole number from 0 to 65535 was"):
        launched({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": text})
