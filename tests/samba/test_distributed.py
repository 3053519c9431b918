"""Data parallel training: several processes give what one gives, and none waits for the dead."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from samba_models import batch, classifier, sgd

import sambaflow.samba as samba
from sambaflow.samba import SambaError, utils
from sambaflow.samba.launch import launched, threads_of_share

ROOT = Path(__file__).parents[2]
APP = ROOT / "tests" / "samba" / "apps" / "replicas.py"
PATIENCE = 280
"""Seconds that are plenty on a busy machine, and fewer than a group waits for one that hangs."""


@pytest.fixture(scope="module")
def app():
    spec = importlib.util.spec_from_file_location("replicas", APP)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiled(app, folder, optimizer):
    app.compile_(str(folder), optimizer)
    return folder / optimizer / f"{optimizer}.pef"


def environment(**more):
    kept = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_PORT")}
    return {**kept, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", **more}


def free_port():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return str(free.getsockname()[1])


def torchrun(*words):
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--standalone",
    ]
    return subprocess.run(
        [*command, str(APP), *map(str, words)],
        env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip


def on_the_host(app, name):
    """Train on the joined batches with torch, from the weights of process 0."""
    torch.manual_seed(0)
    model = app.Perceptron()
    if name == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=1e-3, betas=(0.9, 0.997), weight_decay=0
        )
    for step in range(app.STEPS):
        loss, _ = model(*app.batch(step, 2 * app.ROWS))
        optimizer.zero_grad()
        loss.backward()
        if name == "adamw":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
    return dict(model.named_parameters())


@pytest.mark.parametrize(
    "optimizer", ["sgd", pytest.param("adamw", marks=pytest.mark.long)], ids=["sgd", "adamw"]
)
def test_two_processes_are_one_that_gets_the_joined_batch(app, tmp_path, optimizer):
    compiled(app, tmp_path, optimizer)
    done = torchrun("run", tmp_path, optimizer)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    events = ["PyRT_GET_TENSORS_GATHER", "PyRT_SET_TENSORS_BROADCAST"]
    assert lines == [dict.fromkeys(("normal", "inorder", "optimal"), events)] * 2
    expected = on_the_host(app, optimizer)
    # Adam moves by g / |g|: where a gradient is next to nothing, so is what decides on the sign.
    near = {"sgd": 5e-6, "adamw": 5e-5}[optimizer]
    for mode in ("normal", "inorder", "optimal"):
        first, second = (torch.load(tmp_path / f"{optimizer}.{mode}.{rank}") for rank in (0, 1))
        for name, wanted in expected.items():
            assert torch.equal(first[name], second[name]), (mode, name)
            torch.testing.assert_close(first[name], wanted.detach(), rtol=2e-4, atol=near)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("kill", ""),
        pytest.param("raise", "ValueError: bad data", marks=pytest.mark.long),
        pytest.param("exit", "", marks=pytest.mark.long),
    ],
    ids=["killed", "raised", "exited"],
)
def test_a_job_ends_when_a_process_does(app, tmp_path, how, says):
    """No launcher helps here: the process that is left has to notice by itself."""
    pef = compiled(app, tmp_path, "sgd")
    port = free_port()
    ranks = [
        environment(RANK=rank, WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=port)
        for rank in "01"
    ]
    processes = [
        subprocess.Popen(
            [sys.executable, str(APP), "fail", str(pef), how],
            env=env, stderr=subprocess.PIPE, text=True,
        )
        for env in ranks
    ]  # fmt: skip
    try:
        errors = [process.communicate(timeout=PATIENCE)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [
        1, {"kill": -9, "raise": 1, "exit": 3}[how],
    ]  # fmt: skip
    assert "failed in process 0: another process has ended, failed or does not answer" in errors[0]
    assert says in errors[1]


@pytest.fixture(scope="module")
def pefs(tmp_path_factory):
    """The PEFs of a small model, compiled for several processes and for one."""
    folder = str(tmp_path_factory.mktemp("out"))

    def pef(name, **config):
        model = classifier(0.0)
        config = {"output_folder": folder, **config}
        return samba.session.compile(model, batch(), sgd(model), name=name, config_dict=config)

    return pef("together", data_parallel=True, world_size=8), pef("alone")


@pytest.fixture
def model():
    yield classifier(0.0)
    samba.session.reset()


@pytest.fixture
def group(tmp_path):
    """This process as a group of one: any number will do."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


@pytest.fixture
def reductions(monkeypatch):
    """What is reduced, by name."""
    from sambaflow.samba.distributed import GroupReducer

    names = []
    start = GroupReducer.start

    def noted(self, name, buffer):
        names.append(name)
        return start(self, name, buffer)

    monkeypatch.setattr(GroupReducer, "start", noted)
    return names


def test_without_data_parallel_nothing_is_reduced(pefs, model, group, reductions):
    outputs = utils.trace_graph(model, batch(), sgd(model), pef=pefs[0])
    samba.session.run(batch(), outputs)
    samba.session.run(batch(), outputs, section_types=["fwd", "bckwd", "opt"])
    assert reductions == []
    samba.session.run(batch(), outputs, data_parallel=True)
    assert reductions == ["sgd.pack0__grad"]


@pytest.mark.parametrize(
    ("types", "count"),
    [
        (["fwd"], 0),
        (["fwd", "bckwd"], 0),
        (["bckwd", "opt"], 1),
        (["bckwd", "reduce"], 1),
        (["reduce", "opt"], 1),
        (["opt"], 1),
    ],
    ids=str,
)
def test_gradients_are_reduced_before_they_are_used(pefs, model, group, reductions, types, count):
    outputs = utils.trace_graph(model, batch(), sgd(model), pef=pefs[0])
    first = ["fwd"] if "bckwd" in types else ["fwd", "bckwd"]
    samba.session.run(batch(), outputs, section_types=first)
    samba.session.run(section_types=types, data_parallel=True)
    assert len(reductions) == count


def test_processes_are_launched_by_others(pefs, model, monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    outputs = utils.trace_graph(model, batch(), sgd(model), pef=pefs[0])
    with pytest.raises(SambaError, match=r"for several processes; launch .*torchrun --nproc"):
        samba.session.run(batch(), outputs, data_parallel=True)
    with pytest.raises(SambaError, match="launch several processes"):
        utils.trace_graph(model, batch(), sgd(model), pef=pefs[0], distlearn_config={"a": 1})


def test_a_pef_for_one_process_is_told(pefs, model, group):
    outputs = utils.trace_graph(model, batch(), sgd(model), pef=pefs[1])
    with pytest.raises(SambaError, match=r"compiled for one process; compile .*--data-parallel"):
        samba.session.run(batch(), outputs, data_parallel=True)


def test_modes_are_known(pefs, model, group):
    with pytest.raises(SambaError, match=r"no data_parallel_mode 'fast'; it is one of normal, in"):
        utils.trace_graph(model, batch(), sgd(model), pef=pefs[0], data_parallel_mode="fast")
    outputs = utils.trace_graph(model, batch(), sgd(model), pef=pefs[0])
    with pytest.raises(SambaError, match="no data_parallel_mode 'slow'"):
        samba.session.run(batch(), outputs, data_parallel=True, data_parallel_mode="slow")


def test_evaluation_needs_no_others(pefs, model):
    outputs = utils.trace_graph(model, batch(), None, pef=pefs[0])
    found = samba.session.run(batch(), outputs, section_types=["fwd"], data_parallel=True)
    assert len(found) == 2


@pytest.mark.parametrize(
    ("variables", "rank", "size", "address"),
    [
        ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, 1, 2, "env://"),
        ({"RANK": "1", "WORLD_SIZE": "2"}, 1, 2, "tcp://localhost:29500"),
        (
            {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}, 3, 4,
            "tcp://localhost:29500",
        ),
        ({"PMI_RANK": "0", "PMI_SIZE": "2", "MASTER_PORT": "77"}, 0, 2, "tcp://localhost:77"),
        (
            {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_TASKS_PER_NODE": "1(x2)",
             "MASTER_ADDR": "node1"}, 1, 2, "tcp://node1:29500",
        ),
    ],
    ids=["torchrun", "by hand", "Open MPI", "MPICH", "Slurm"],
)  # fmt: skip
def test_launchers_say_who_a_process_is(variables, rank, size, address):
    found = launched(variables)
    assert (found.rank, found.size, found.address) == (rank, size, address)


def test_jobs_on_one_host_meet_at_ports_of_their_own():
    def port(job):
        variables = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_ID": job}
        return launched(variables).address

    assert port("1") == port("1")
    assert port("1") != port("2")


def test_several_hosts_have_to_be_told_where_to_meet():
    variables = {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_NTASKS_PER_NODE": "2"}
    with pytest.raises(SambaError, match="set MASTER_ADDR to the name of the host of process 0"):
        launched(variables)


def test_processes_of_a_host_share_its_processors(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert threads_of_share({}) is None
    four = {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}
    assert threads_of_share(four) == 2
    assert threads_of_share({**four, "SN_NUM_THREADS": "5"}) == 5
    assert threads_of_share({**four, "LOCAL_WORLD_SIZE": "16", "WORLD_SIZE": "16"}) == 1


@pytest.mark.parametrize(
    "call",
    [
        "parse_app_args(['run', '--pef', 'm.pef', '--data-parallel'])",
        "samba.session.setup(Namespace(pef='m.pef', data_parallel=True))",
    ],
)
def test_ranks_are_known_before_a_model_is_traced(call, tmp_path):
    script = (
        "from argparse import Namespace; import torch.distributed as dist; "
        "import sambaflow.samba as samba; "
        "from sambaflow.samba.utils.argparser import parse_app_args; "
        "parse_app_args(['compile', '--data-parallel']); assert not dist.is_initialized(); "
        f"{call}; print(dist.get_rank(), samba.utils.get_world_size())"
    )
    place = environment(RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost", MASTER_PORT=free_port())
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=place, capture_output=True, text=True, timeout=PATIENCE, check=True,
    )  # fmt: skip
    assert done.stdout == "0 1\n"
