"""The modes of a session and its profiles, asked for through the session as applications do."""

from __future__ import annotations

import pytest
import torch
from samba_models import batch, classifier, sgd
from torch import nn

import sambaflow.samba as samba
from sambaflow.samba import utils

SESSION = samba.session


@pytest.fixture(autouse=True)
def _begin_anew(tmp_path, monkeypatch):
    """Each test has a folder of its own, where `compile` writes into `out`."""
    monkeypatch.chdir(tmp_path)
    yield
    SESSION.disable_lazy_param()
    SESSION.reset()


@pytest.fixture(scope="module")
def pef(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("out"))
    model = classifier()
    return SESSION.compile(model, batch(), sgd(model), config_dict={"output_folder": folder})


@pytest.fixture
def traced(pef):
    """Return how to trace the model of `pef`: inputs and outputs."""

    def trace():
        model, inputs = classifier(), batch()
        return inputs, utils.trace_graph(model, inputs, sgd(model), pef=pef)

    return trace


def layer(dtype=torch.float32):
    return nn.Linear(48, 48, dtype=dtype).weight


def lazy_values(**options):
    """Return the weight that a layer gets in the mode with `options`."""
    SESSION.enable_lazy_param(**options)
    weight = layer(torch.bfloat16)
    SESSION.disable_lazy_param()
    return weight.torch_tensor()


def test_modules_are_lazy_from_enable_to_disable():
    SESSION.enable_lazy_param()
    assert SESSION.use_lazy_param()
    assert SESSION.use_static_functional()
    assert not layer().has_data
    SESSION.disable_lazy_param()
    assert not SESSION.use_lazy_param()
    assert not SESSION.use_static_functional()
    assert not layer().is_meta


def test_lazy_values_are_those_of_the_options():
    first = lazy_values(seed=3, init_threads=1)
    assert torch.equal(first, lazy_values(seed=3, init_threads=4))
    assert not torch.equal(first, lazy_values(seed=4))
    assert not torch.equal(first, lazy_values(seed=3, fp32_to_bf16_rounding="truncation"))
    for options in ({"init_threads": 0}, {"fp32_to_bf16_rounding": "up"}):
        with pytest.raises(ValueError, match=next(iter(options))):
            SESSION.enable_lazy_param(**options)


def test_normal_values_by_the_inverse_of_their_distribution_are_others():
    drawn = []
    for inverse in (False, True):
        SESSION.enable_lazy_param(seed=3, inverse_transform_sampling=inverse)
        table = nn.Embedding(20, 20).weight
        SESSION.disable_lazy_param()
        drawn.append(table.torch_tensor())
    assert not torch.equal(*drawn)


def test_a_reset_generator_repeats_its_values():
    SESSION.enable_lazy_param(seed=3)
    first = layer()
    second = layer()
    SESSION.reset_random_generator()
    again = layer()
    assert torch.equal(first.torch_tensor(), again.torch_tensor())
    assert not torch.equal(first.torch_tensor(), second.torch_tensor())


def test_pinned_memory_from_enable_to_disable():
    assert not SESSION.use_pinned_memory()
    SESSION.enable_pinned_memory()
    assert SESSION.use_pinned_memory()
    SESSION.disable_pinned_memory()
    assert not SESSION.use_pinned_memory()


def test_tracing_marks_inputs_and_gradients_of_outputs_for_fast_access(traced):
    unmarked = samba.zeros(1, name="label")
    unmarked.fast_access = False
    assert not samba.SambaTensor.is_fast_access("image")
    (image, label), (loss, _) = traced()
    assert image.fast_access
    assert not label.fast_access  # as the application wanted
    assert samba.SambaTensor.is_fast_access(loss.sn_grad_name)
    assert not loss.fast_access
    SESSION.reset()
    assert not image.fast_access


def test_a_reset_session_was_told_nothing(pef):
    SESSION.setup(type("Args", (), {})())
    SESSION.options = {"pef": pef}
    SESSION.data_parallel_mode = "optimal"
    SESSION.enable_pinned_memory()
    SESSION.tracing = True
    SESSION.reset()
    found = SESSION.options, SESSION.data_parallel_mode, SESSION.tracing
    assert found == ({}, "normal", False)
    assert not SESSION.use_pinned_memory()


def test_legacy_names_are_accepted_and_are_the_same(traced):
    with pytest.warns(UserWarning, match="changes no name"):
        SESSION.use_legacy_names(True)
    _, outputs = traced()
    assert outputs[0].sn_name == "classifier__criterion__crossentropyloss__outputs__0"


EVENTS = {
    "SAMBA_SET_PEF": 1,
    "SAMBA_INIT_RUNTIME": 3,  # its code, and two selections of sections
    "PyRT_SET_TENSORS": 2,  # parameters and inputs
    "PyRT_SET_PINNED_INPUT_TENSORS": 1,
    "PyRT_RUN": 3,
    "PyRT_GET_TENSORS": 4,
    "SAMBA_SESSION_RUN": 2,
    "SAMBA_SESSION_RUN_[FWD,BCKWD]": 1,
}


def test_the_documented_events_are_measured(traced):
    SESSION.start_samba_profile()
    inputs, outputs = traced()
    SESSION.run(inputs, outputs)
    SESSION.enable_pinned_memory()
    SESSION.run(inputs, outputs)
    SESSION.run(output_tensors=outputs, section_types=["fwd", "bckwd"])
    SESSION.get_tensors(outputs)
    SESSION.end_samba_profile("samba.txt")
    found = {name: len(SESSION.profiler._get_iter_times(name)) for name in EVENTS}
    assert found == EVENTS


def test_the_pef_of_a_reset_session_is_measured(pef):
    with SESSION.samba_profile("samba.txt") as profiler:
        SESSION.reset(pef)
    assert set(profiler.get_latencies(["SAMBA_SET_PEF", "SAMBA_INIT_RUNTIME"])) == {
        "SAMBA_SET_PEF",
        "SAMBA_INIT_RUNTIME",
    }


@pytest.mark.parametrize("timer", [True, False])
def test_the_runtime_profile_of_a_session(traced, tmp_path, capsys, monkeypatch, timer):
    monkeypatch.setenv("ENABLE_RUNTIME_PERF", "SUMMARY")
    inputs, outputs = traced()
    capsys.readouterr()
    SESSION.start_runtime_profile(timer_enabled=timer)
    SESSION.run(inputs, outputs)
    SESSION.end_runtime_profile("mine.log")
    table = (tmp_path / "mine.log").read_text()
    assert all(kind in table for kind in ("FWD", "BCKWD", "OPT", "cumulative"))
    assert ("Profiled for" in capsys.readouterr().out) is timer


def test_what_is_called_on_a_session_concerns_no_other(pef):
    """Methods that the class has, too, are of the process's session there, and of no other's."""
    other, inputs = samba.SambaSession(), batch()
    models = {session: classifier() for session in (SESSION, other)}
    for session, model in models.items():
        session.trace_graph(model, inputs, sgd(model), pef=pef)
    kept, model = models.values()
    name, parameter = next(iter(model.named_parameters()))
    before = parameter.torch().clone()
    other.run(inputs, model.output_tensors)
    other.to_cpu(model)
    stepped = model.get_parameter(name).torch().clone()
    assert not torch.equal(stepped, before)
    SESSION.to_cpu(kept)
    assert not torch.equal(kept.get_parameter(name).torch(), stepped)
    model.get_parameter(name).data.copy_(before)
    other.to_rdu(model)
    (sent,) = other.get_tensors_by_name([parameter.sn_name])
    assert torch.equal(sent.torch(), before)
    other.reset()
    assert other.device is None
    assert SESSION.device is not None
    samba.SambaSession.reset()
    assert SESSION.device is None
