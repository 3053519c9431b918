"""Data parallel training: several processes give what one gives, and none waits for the dead."""

from __future__ import annotations

import functools
import importlib.util
import signal
import sys
import warnings
from pathlib import Path

import pytest
import torch
from samba_models import batch, classifier, sgd
from together import environment, run

import sambaflow.samba as samba
from sambaflow.samba import SambaError, utils

APPS = Path(__file__).parent / "apps"
APP, SHARES = APPS / "replicas.py", APPS / "shares.py"


def loaded(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def app():
    return loaded(APP)


@pytest.fixture(scope="module")
def shares():
    return loaded(SHARES)


@pytest.fixture(scope="module")
def cases(shares, tmp_path_factory):
    """A folder with the PEFs of all cases."""
    folder = tmp_path_factory.mktemp("cases")
    for name, case in shares.CASES.items():
        if not case.program:
            shares.compiled(str(folder), name, shares.ROWS, together=True)
    return folder


@pytest.fixture(scope="module")
def compiled(app, tmp_path_factory):
    """A function that gives the PEF of an optimizer for a number of rows, compiled once."""

    @functools.cache
    def pef(optimizer, rows=4):
        folder = tmp_path_factory.mktemp("replicas")
        app.compile_(str(folder), optimizer, rows)
        return folder / optimizer / f"{optimizer}.pef"

    return pef


_TORCHRUN = "from torch.distributed.run import main; main()"


@pytest.fixture
def torchrun(forks):
    """Launch two processes; the name of a host may take long to look up, so it is not asked for."""

    def launched(folder, *words):
        launcher = ["torchrun", "--nproc-per-node", "2", "--standalone"]
        command = [*launcher, "--local-addr", "localhost", *words]
        return run(forks, folder, [(command, environment())], code=_TORCHRUN)

    return launched


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
def test_two_processes_are_one_that_gets_the_joined_batch(
    torchrun, app, compiled, tmp_path, optimizer
):
    folder = compiled(optimizer).parents[1]
    job = torchrun(tmp_path, APP, "run", folder, optimizer)
    assert job.codes == (0,), job
    expected = on_the_host(app, optimizer)
    # Adam moves by g / |g|: where a gradient is next to nothing, so is what decides on the sign.
    near = {"sgd": 5e-6, "adamw": 5e-5}[optimizer]
    for mode in ("normal", "inorder", "optimal"):
        found = [torch.load(folder / f"{optimizer}.{mode}.{rank}") for rank in (0, 1)]
        (first, events), (second, others) = found
        assert events == others == ["PyRT_GET_TENSORS_GATHER", "PyRT_SET_TENSORS_BROADCAST"]
        for name, wanted in expected.items():
            assert torch.equal(first[name], second[name]), (mode, name)
            torch.testing.assert_close(first[name], wanted.detach(), rtol=2e-4, atol=near)


@pytest.mark.parametrize(
    "size",
    [3, pytest.param(2, marks=pytest.mark.long), pytest.param(4, marks=pytest.mark.long)],
    ids=str,
)
def test_whatever_trains_is_as_on_the_joined_batch(launch, shares, cases, tmp_path, size):
    """Optimizers, clipping, accumulation, shared weights, padding, precision, checkpoints."""
    job = launch(tmp_path, *[[SHARES, cases]] * size)
    assert job.codes == (0,) * size, job
    found = [torch.load(cases / f"weights.{rank}") for rank in range(size)]
    for name, case in shares.CASES.items():
        narrow = "graphamp_preset" in case.config
        expected = alone(shares, tmp_path, name, size) if narrow else shares.on_the_host(name, size)
        # Sums of other lengths are rounded to BF16 otherwise, here and there.
        near = {"rtol": 0, "atol": 2e-2} if narrow else {"rtol": 1e-5, "atol": 2e-6}
        for key, wanted in expected.items():
            first = found[0][name][key]
            assert all(torch.equal(first, other[name][key]) for other in found), (name, key)
            torch.testing.assert_close(first, wanted, **near, msg=lambda m, n=name: f"{n}: {m}")


def alone(shares, folder, name, size):
    """Train a case on the joined batches on one device."""
    rows = shares.ROWS * size
    pef = shares.compiled(str(folder), name, rows, together=False)
    return shares.trained(pef, name, 0, 1, rows)


@pytest.mark.parametrize(
    ("who", "how", "size"),
    [
        (1, "kill", 3),
        pytest.param(0, "kill", 2, marks=pytest.mark.long),
        pytest.param(2, "raise", 3, marks=pytest.mark.long),
        pytest.param(1, "exit", 4, marks=pytest.mark.long),
    ],
    ids=["killed", "the first killed", "raised", "left"],
)
def test_a_job_ends_when_a_process_does(launch, compiled, tmp_path, who, how, size):
    """No launcher helps here: the processes that are left have to notice by themselves."""
    pef = compiled("sgd")
    job = launch(tmp_path, *[[APP, "fail", pef, 4, who, how]] * size)
    codes = [1] * size
    codes[who] = {"kill": -9, "raise": 1, "exit": 0}[how]
    assert job.codes == tuple(codes), job
    for rank in {*range(size)} - {who}:
        assert f"failed in process {rank}: process {who} has ended; what it" in job.said[rank], job
    if how == "raise":
        assert "ValueError: bad data" in job.said[who]


def test_ctrl_c_ends_a_process_whose_group_still_waits(launch, compiled, tmp_path):
    """Threads of the group wait for process 1, which stays until process 0 has ended."""
    job = launch(tmp_path, *[[APP, "fail", compiled("sgd"), 4, 1, "interrupt"]] * 2)
    assert job.codes[0] == -signal.SIGINT, job
    assert "KeyboardInterrupt" in job.said[0], job
    assert "process 0 has ended; what it printed says why" in job.said[1], job


@pytest.mark.long
def test_a_process_that_is_late_is_waited_for(launch, compiled, tmp_path):
    job = launch(tmp_path, *[[APP, "fail", compiled("sgd"), 4, 1, "be late"]] * 3)
    assert job.codes == (0, 0, 0), job


@pytest.mark.long
def test_a_process_that_hangs_is_told(launch, compiled, tmp_path):
    pef = compiled("sgd")
    command = [APP, "fail", pef, 4, 1, "hang"]
    job = launch(tmp_path, *[command] * 3, CCL_TIMEOUT="50")
    assert job.codes == (1, 1, 1), job
    for rank in (0, 2):
        assert "process 1 has ended or does not answer; what it printed" in job.said[rank], job


def test_processes_with_other_batches_do_not_train_together(launch, compiled, tmp_path):
    few, many = compiled("sgd"), compiled("sgd", 8)
    commands = [[APP, "fail", pef, rows, -1, ""] for pef, rows in ((few, 4), (many, 8))]
    job = launch(tmp_path, *commands)
    assert job.codes == (1, 1), job
    for said in job.said:
        assert "process 1 runs a PEF for other inputs, image [8, 16], label [8]" in said, job
        assert "than process 0, image [4, 16], label [4]" in said, job


@pytest.mark.long
def test_a_launcher_may_start_all_again(torchrun, compiled, tmp_path):
    """What the first attempt left in the launcher's store is not taken for the second's."""
    pef = compiled("sgd")
    job = torchrun(tmp_path, "--max-restarts", "1", APP, "fail", pef, 4, 1, "raise once")
    assert job.codes == (0,), job
    assert "ValueError: bad data" in job.said[0]
    assert job.said[0].count("all steps are done") == 2, job


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
    from sambahost.data_parallel import GroupReducer

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
    with pytest.raises(
        SambaError, match=r"^the PEF was compiled for one process; compile .*--data"
    ):
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


@pytest.mark.parametrize("types", [[], ["fwd", "bckwd", "opt"]], ids=["all", "some"])
def test_who_was_launched_with_others_and_trains_alone_is_told(pefs, model, monkeypatch, types):
    outputs = utils.trace_graph(model, batch(), sgd(model), pef=pefs[0])
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        samba.session.run(batch(), outputs, section_types=["fwd", "bckwd"])
    with pytest.warns(UserWarning, match=r"with 2 more, and trains for itself.*data_parallel=args"):
        samba.session.run(batch(), outputs, section_types=types)
    samba.session.run(batch(), outputs, section_types=["fwd", "bckwd"])
    samba.session.run(section_types=["opt"])  # told once


def test_processes_that_share_nothing_may_be_launched_together(pefs, model, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    outputs = utils.trace_graph(model, batch(), sgd(model), pef=pefs[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        samba.session.run(batch(), outputs)


@pytest.mark.parametrize("mode", ["normal", "inorder", "optimal"])
def test_reductions_begin_while_the_backward_pass_goes_on(app, compiled, group, monkeypatch, mode):
    """In all modes but the normal one: gradients that are made later are not there yet."""
    from sambahost.data_parallel import GroupReducer

    buffers, begun = {}, []
    start = GroupReducer.start

    def noted(self, name, buffer):
        begun.append([name for name, other in buffers.items() if other.any()])
        buffers[name] = buffer
        return start(self, name, buffer)

    monkeypatch.setattr(GroupReducer, "start", noted)
    pef = compiled("sgd")
    model = app.perceptron(0)
    inputs = app.named(*app.batch(0, app.ROWS))
    outputs = utils.trace_graph(model, inputs, app.optimizer_of("sgd", model), pef=str(pef))
    samba.session.run(inputs, outputs, data_parallel=True, data_parallel_mode=mode)
    for buffer in buffers.values():
        buffer[...] = 0
    begun.clear()
    samba.session.run(inputs, outputs, data_parallel=True, data_parallel_mode=mode)
    assert begun[-1] == list(buffers)
    assert (begun[0] == list(buffers)) == (mode == "normal")
