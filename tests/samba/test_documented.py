"""The page of names beside what is there; and what no other test of sessions reads."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from samba_documented import DOCUMENTED
from samba_models import batch, classifier, sgd

import sambaflow
import sambaflow.samba as samba
from sambaflow.samba import SambaError, utils
from sambaflow.samba.arguments.app_options import OPTIONS

MODULES = ["sambatensor.SambaTensor", "utils.argparser", "utils.common", "utils.utils"]
"""Modules that the API pages are named after."""

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| `(?P<name>[^`]+)` \| (?P<status>.+) \| (?:`(?P<test>[^`]+)`|-) \|$", re.M)
PAGE = {
    found["name"]: (found["status"], found["test"])
    for found in ROW.finditer((ROOT / "docs" / "samba" / "api.md").read_text())
}


def resolved(name):
    """Return what `name`, below samba or sambaflow, is; modules are imported on the way."""
    path = (
        [*name.split(".")]
        if name.startswith("sambaflow.")
        else ["sambaflow.samba", *name.split(".")]
    )
    module, found = path[0], importlib.import_module(path[0])
    for part in path[1:]:
        module = f"{module}.{part}"
        try:
            found = (
                inspect.getattr_static(found, part)
                if isinstance(found, type)
                else getattr(found, part)
            )
        except AttributeError:
            if name.startswith("SambaSession."):
                return getattr(samba.session, part)  # set in the constructor
            found = importlib.import_module(module)
    return found


# Methods that torch has in C, without a signature: they are called with what is documented.
CALLS = {
    "size": {"dim": 0},
    "new_empty": {"size": (2,), "dtype": torch.int64, "requires_grad": False},
    "new_ones": {"size": (2,), "dtype": torch.int64, "requires_grad": False},
    "new_zeros": {"size": (2,), "dtype": torch.int64, "requires_grad": False},
    "requires_grad_": {"requires_grad": True},
}


def parameters(thing):
    """Return the names of the parameters of a function, method or class."""
    if isinstance(thing, (staticmethod, classmethod)):
        thing = thing.__func__
    if isinstance(thing, type) and issubclass(thing, torch.Tensor):
        thing = thing.__new__
    return set(inspect.signature(thing).parameters)


def test_the_page_has_every_documented_name_and_no_other():
    assert list(PAGE) == list(DOCUMENTED)


def test_one_import_is_enough_for_every_name():
    """Attributes are found after `import sambaflow.samba`, in a process that imports no more."""
    names = [*(name for name in DOCUMENTED if not PAGE[name][0].startswith("missing")), *MODULES]
    code = """
import sys
import sambaflow.samba
for name in sys.argv[1:]:
    found = sambaflow if name.startswith("sambaflow.") else sambaflow.samba
    name = name.removeprefix("sambaflow.").replace("SambaSession.", "session.")
    for part in name.split("."):
        found = getattr(found, part)
"""
    done = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_documented_name_is_there_with_its_parameters(name):
    status, _ = PAGE[name]
    if status.startswith("missing"):
        with pytest.raises((ImportError, AttributeError)):
            resolved(name)
        return
    found, wanted = resolved(name), set(DOCUMENTED[name].split())
    called = CALLS.get(name.removeprefix("SambaTensor."), {})
    if called:
        assert wanted == set(called)
        getattr(samba.zeros(2), name.removeprefix("SambaTensor."))(**called)
    elif wanted:
        assert wanted <= parameters(found), f"{name} lacks {sorted(wanted - parameters(found))}"


def test_the_page_has_every_option_of_the_command_line():
    text = (ROOT / "docs" / "samba" / "api.md").read_text()
    _, _, table = text.partition("## Options of the command line")
    cells = re.findall(r"^\| (`-[^|]+) \|", table, re.M)
    told = re.findall(r"`(-[^`]+)`", " ".join(cells))
    assert sorted(told) == sorted({word for option in OPTIONS for word in option.spellings})


def test_every_test_of_the_page_is_there():
    sources = {path.name: path.read_text() for path in Path(__file__).parent.glob("test_*.py")}
    assert len(PAGE) > 100
    for name, (status, test) in PAGE.items():
        if status.startswith("missing"):
            continue
        file, _, function = test.partition("::")
        assert f"def {function}(" in sources.get(file, ""), f"{name}: there is no {test}"


# What follows is what no other test of sessions reads.


@pytest.fixture(scope="module")
def pef(tmp_path_factory):
    model = classifier(0.5)
    folder = str(tmp_path_factory.mktemp("out"))
    config = {"output_folder": folder}
    return samba.session.compile(
        model, batch(), sgd(model), name="c", config_dict=config, loss_indices=[0, 1]
    )


@pytest.fixture
def model():
    return classifier(0.5)


@pytest.fixture
def outputs(pef, model):
    yield utils.trace_graph(model, batch(), sgd(model), pef=pef)
    samba.session.reset()


def test_the_keyword_inference_wins_over_the_options(tmp_path, model):
    config = {"output_folder": str(tmp_path), "inference": False}
    for inference, kinds in ((True, {"FWD"}), (None, {"FWD", "BCKWD", "OPT"})):
        path = samba.session.compile(
            model, batch(), sgd(model), config_dict=config, inference=inference
        )
        samba.session.reset(path)
        assert samba.session.get_section_types() == kinds


def test_names_of_hyperparameters_of_dropout(outputs):
    rates = samba.session.get_dropout_rate_argin_names()
    seeds = samba.session.get_dropout_seed_argin_names()
    assert [name.rpartition(".")[2] for name in (*rates, *seeds)] == ["p", "seed"]
    assert {*rates, *seeds} < set(samba.session.get_argin_names())


def test_traced_tensors_by_name(outputs, model):
    session = samba.session
    weight = session.get_samba_tensor_by_name("classifier__layer__weight")
    assert weight is model.layer.weight
    assert session.get_samba_tensor_by_name(outputs[0].sn_name) is outputs[0]
    with pytest.raises(SambaError, match=r"'weight' was traced"):
        session.get_samba_tensor_by_name("weight")
    session.update_tensor(weight.sn_name, torch.ones(3, 4))
    assert torch.equal(model.layer.weight.torch().detach(), torch.ones(3, 4))
    (before,) = session.get_tensors([weight])
    assert not torch.equal(before.torch(), torch.ones(3, 4))
    session.to_device()
    assert torch.equal(session.get_tensors([weight])[0].torch(), torch.ones(3, 4))
    session.update_tensor("image", None)
    with pytest.raises(SambaError, match="'image' was traced"):
        session.get_samba_tensor_by_name("image")
    assert "classifier__norm__running_mean" in session.buffer_dict
    (momentum,) = (
        n for n in session.optim_dict if "layer" in n and n.endswith("weight__momentum_buffer")
    )
    assert session.optim_dict[momentum].shape == (3, 4)


def test_buffers_go_to_the_device_and_back(outputs, model):
    """And parameters do not: they stay as they are on either side."""
    mean, weight = model.norm.running_mean, model.layer.weight
    mean.fill_(3.0)
    on_the_device = weight.sn_data
    weight.data.fill_(7.0)
    samba.session.sync_buffers_to_rdu(model)
    assert torch.equal(weight.sn_data, on_the_device)
    mean.zero_()
    place = mean.data_ptr()
    samba.session.sync_buffers_to_cpu(model, inplace=True)
    assert weight.eq(7).all()
    assert torch.equal(mean, torch.full((3,), 3.0))
    assert mean.data_ptr() == place
    samba.session.run(batch(), outputs)
    kept = mean.data
    samba.session.sync_buffers_to_cpu(model)
    assert mean.data_ptr() != kept.data_ptr()
    assert model.norm.running_mean is mean
    assert torch.equal(kept, torch.full((3,), 3.0))
    assert not torch.equal(mean, kept)


MOMENTUM = "classifier__layer__weight__momentum_buffer"


def test_a_model_and_its_optimizer_come_back(pef, model):
    optimizer = sgd(model)
    outputs = utils.trace_graph(model, batch(), optimizer, pef=pef)
    before = model.layer.weight.data.clone()
    session, weight = samba.session, model.layer.weight
    session.run(batch(), outputs)
    place = weight.data_ptr()
    session.to_cpu_(model, [optimizer])
    assert weight.data_ptr() == place
    once = weight.data.clone()
    assert not torch.equal(once, before)
    momentum = optimizer.state[weight]["momentum_buffer"]
    torch.testing.assert_close(before - 0.1 * momentum, once)
    assert not torch.equal(model.norm.running_mean, torch.zeros(3))
    session.run(batch(), outputs)
    kept = weight.data
    session.to_cpu(model, [optimizer])
    torch.testing.assert_close(once - 0.1 * optimizer.state[weight]["momentum_buffer"], weight.data)
    assert torch.equal(kept, once)
    session.to_cpu(model, inplace=True)
    assert weight.data_ptr() != place
    optimizer.state[weight]["momentum_buffer"].fill_(7.0)
    session.to_rdu(model)
    assert not session.get_tensors_by_name([MOMENTUM])[0].eq(7).any()
    session.to_rdu(model, optimizer)
    assert session.get_tensors_by_name([MOMENTUM])[0].eq(7).all()


def test_gradients_of_outputs_are_initialised(outputs, model):
    loss, out = outputs
    given = torch.arange(15.0).reshape(5, 3)
    utils.init_output_grads([loss.sn_name], [], {out.sn_name: given})
    assert torch.equal(out.sn_grad, given)
    assert torch.equal(loss.sn_grad, torch.ones(()))
    utils.init_output_grads([], [out.sn_name])
    assert torch.equal(out.sn_grad, torch.ones(5, 3))


def test_tracing_initialises_gradients_of_outputs_unless_told_not_to(outputs, model):
    given = torch.arange(15.0).reshape(5, 3)
    outputs[1].sn_grad = given
    for init, wanted in ((False, given), (True, torch.ones(5, 3))):
        _, out = utils.trace_graph(
            model, batch(), sgd(model), init_output_grads=init, loss_indices=[0, 1]
        )
        assert torch.equal(out.sn_grad, wanted)


def test_modes_are_told():
    session = samba.session
    assert not session.tracing
    assert not session.use_static_functional()
    session.tracing = True
    assert session.tracing
    assert session.use_static_functional()
    session.tracing = False
    assert not session.use_static_functional()
    assert not session.use_lazy_param()
    session.enable_lazy_param()
    assert session.use_lazy_param()
    session.disable_lazy_param()
    with samba.patched_torch() as patched:
        assert patched.ones(1).item() == 1


def test_graphamp_is_off_in_the_block():
    with samba.session.disable_graphamp():
        assert not samba.session.graphamp
    assert samba.session.graphamp


def test_setup_gives_options_that_calls_leave_out(tmp_path, pef, model):
    from sambaflow.samba.argconf.args import CompileArgs, RunArgs

    samba.session.setup(CompileArgs(output_folder=str(tmp_path), pef_name="mine", extra=1))
    try:
        assert samba.session.options["extra"] == 1
        path = samba.session.compile(torch.nn.Linear(4, 3), batch()[0])
        assert path == str(tmp_path / "mine" / "mine.pef")
        samba.session.setup(RunArgs(pef=pef))
        assert len(utils.trace_graph(model, batch(), sgd(model))) == 2
    finally:
        samba.session.options = {}
        samba.session.reset()


@pytest.mark.parametrize("kind", ["flat", "hydra", "dict", "namespace"])
def test_setup_takes_both_parts_in_one(tmp_path, pef, model, kind):
    from sambaflow.samba.argconf.args import FlattenSambaArgsAllowExtra, HydraSambaArgs

    compiling, running = {"output_folder": str(tmp_path), "pef_name": kind}, {"pef": pef}

    def options(command):
        if kind == "hydra":
            return HydraSambaArgs(command=command, samba_compile=compiling, samba_run=running, a=1)
        both = {"command": command, **compiling, "pef": pef if command == "run" else None, "a": 1}
        if kind == "flat":
            return FlattenSambaArgsAllowExtra(**both)
        return both if kind == "dict" else Namespace(**both)

    samba.session.setup(options("compile"))
    path = samba.session.compile(torch.nn.Linear(4, 3), batch()[0])
    assert path == str(tmp_path / kind / f"{kind}.pef")
    samba.session.setup(options("run"))
    assert len(utils.trace_graph(model, batch(), sgd(model))) == 2
    assert samba.session.device.path == pef
    samba.session.reset()


def test_a_profile_from_start_to_end(outputs, tmp_path):
    samba.session.start_samba_profile()
    assert samba.session.profiler.enabled
    samba.session.run(batch(), outputs, section_types=["FWD"])
    samba.session.end_samba_profile(str(tmp_path / "t.txt"))
    assert "SAMBA_SESSION_RUN_[FWD]" in (tmp_path / "t.txt").read_text()


def test_names_beside_samba():
    assert re.match(r"\d+\.\d+", sambaflow.__version__)
    assert sambaflow.is_demo() is False
    assert sambaflow.is_internal() is False


def test_the_older_name_converts_too():
    model = torch.nn.Linear(2, 2)
    samba.from_torch_(model)
    assert model.weight.sn_name == "linear__weight"
