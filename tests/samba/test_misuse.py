"""The session and its helpers given what they cannot take: one clear error, never a raw one."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from raised import raised_by_the_package
from samba_models import batch, classifier, sgd

import sambaflow.samba as samba
from pef import PefError
from sambac import CompileError
from sambaflow.samba import SambaError, utils

SESSION = samba.session
ODD = {
    "None": None,
    "a number": 3,
    "a flag": True,
    "a word": "q",
    "a list": [1],
    "an array": np.zeros((3, 3)),
    "a tensor": torch.zeros(3, 3),
    "an object": object(),
    "a dict": {"q": object()},
    "bytes": b"x",
    "a function": print,
    "a class": int,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("out"))


@pytest.fixture(scope="module")
def pef(folder):
    model = classifier()
    config = {"output_folder": folder}
    return SESSION.compile(model, batch(), sgd(model), name="c", config_dict=config)


@pytest.fixture
def traced(pef):
    model = classifier()
    utils.trace_graph(model, batch(), sgd(model), pef=pef)
    return model


def compiled(model, v, **keywords):
    return SESSION.compile(model, batch(), sgd(model), **keywords)


NONE, NUMBER, WORD = "None", "a number", "a word"
TENSOR, DICT, LIST = "a tensor", "a dict", "a list"
COMPILES = {
    "compile(model)": (lambda m, v: SESSION.compile(v, batch()), ()),
    "compile(inputs)": (lambda m, v: SESSION.compile(m, v, sgd(m)), ()),
    "compile(optimizers)": (lambda m, v: SESSION.compile(m, batch(), v), (NONE,)),
    "compile(name)": (lambda m, v: compiled(m, v, name=v), (WORD,)),
    "compile(loss_indices)": (lambda m, v: compiled(m, v, loss_indices=v), (NONE, LIST)),
    "compile(config_dict)": (lambda m, v: compiled(m, v, config_dict=v), (NONE, DICT)),
    "compile(pef_metadata)": (lambda m, v: compiled(m, v, pef_metadata=v), (NONE, DICT)),
    "trace_multigraph(graph)": (lambda m, v: utils.trace_multigraph(v, batch()), ()),
    "trace_multigraph(inputs)": (lambda m, v: utils.trace_multigraph(m, v), ()),
    "trace_multigraph(trace_prefix)": (
        lambda m, v: utils.trace_multigraph(m, batch(), trace_prefix=v), (NONE, WORD)
    ),
    "add_graph(graph)": (lambda m, v: SESSION.add_graph(v), ()),
    "init_multigraph_runtime(pef)": (lambda m, v: SESSION.init_multigraph_runtime(v), ()),
    "reset(pef_path)": (lambda m, v: SESSION.reset(v), ()),
    "setup(args)": (lambda m, v: SESSION.setup(v), (DICT, TENSOR)),
    "enable_lazy_param(seed)": (lambda m, v: SESSION.enable_lazy_param(v), (NONE, NUMBER)),
    "enable_lazy_param(threads)": (lambda m, v: SESSION.enable_lazy_param(1, v), (NUMBER,)),
    "enable_lazy_param(rounding)": (lambda m, v: SESSION.enable_lazy_param(1, 8, False, v), ()),
    "from_torch_tensor(tensor)": (lambda m, v: samba.from_torch_tensor(v), (NONE, TENSOR)),
    "from_torch_tensor(name)": (
        lambda m, v: samba.from_torch_tensor(torch.zeros(1), name=v), (NONE, WORD)
    ),
    "to_torch(obj)": (lambda m, v: samba.to_torch(v), (NONE, TENSOR)),
    "from_torch_model_(model)": (lambda m, v: samba.from_torch_model_(v), ()),
    "from_named_dict(tensors)": (lambda m, v: samba.from_named_dict(v), ()),
}  # fmt: skip
RUNS = {
    "trace_graph(model)": (lambda m, v: utils.trace_graph(v, batch()), ()),
    "trace_graph(inputs)": (lambda m, v: utils.trace_graph(m, v, sgd(m)), ()),
    "trace_graph(optim)": (lambda m, v: utils.trace_graph(m, batch(), v), (NONE,)),
    "trace_graph(pef)": (lambda m, v: utils.trace_graph(m, batch(), pef=v), (NONE,)),
    "trace_graph(loss_indices)": (
        lambda m, v: utils.trace_graph(m, batch(), sgd(m), loss_indices=v), (NONE, LIST)
    ),
    **{
        f"trace_graph({word})": (
            lambda m, v, word=word: utils.trace_graph(m, batch(), sgd(m), **{word: v}), fine
        )
        for word, fine in (
            ("mapping", (NONE,)), ("data_parallel_mode", ()), ("config_dict", (NONE, DICT))
        )
    },
    "run(input_tensors)": (lambda m, v: SESSION.run(v, m.output_tensors), (NONE,)),
    "run(output_tensors)": (lambda m, v: SESSION.run(batch(), v), (NONE,)),
    "run(lr)": (lambda m, v: SESSION.run(batch(), (), {"lr": v}), (NUMBER,)),
    **{
        f"run({word})": (
            lambda m, v, word=word: SESSION.run(batch(), m.output_tensors, **{word: v}), fine
        )
        for word, fine in (
            ("hyperparam_dict", (NONE, DICT)),
            ("section_ids", (NUMBER, LIST)),
            ("section_types", ()),
            ("run_until_call_id", (NONE, NUMBER)),
            ("run_from_call_id", (NONE,)),
            ("data_parallel_mode", (NONE, WORD)),
            ("grad_of_outputs", (NONE,)),
            ("graph_name", (NONE,)),
        )
    },
    "get_samba_tensor_by_name": (lambda m, v: SESSION.get_samba_tensor_by_name(v), ()),
    "get_tensors": (lambda m, v: SESSION.get_tensors(v), ()),
    "get_tensors([_])": (lambda m, v: SESSION.get_tensors([v]), ()),
    "get_tensors_by_name": (lambda m, v: SESSION.get_tensors_by_name(v), ()),
    "get_tensors_by_name([_])": (lambda m, v: SESSION.get_tensors_by_name([v]), ()),
    "update_tensor(name)": (lambda m, v: SESSION.update_tensor(v, batch()[0]), ()),
    "update_tensor(tensor)": (lambda m, v: SESSION.update_tensor("image", v), (NONE,)),
    "to_cpu(model)": (lambda m, v: SESSION.to_cpu(v), ()),
    "to_cpu(optims)": (lambda m, v: SESSION.to_cpu(m, v), (NONE,)),
    "to_rdu(model)": (lambda m, v: SESSION.to_rdu(v), ()),
    "to_rdu(optims)": (lambda m, v: SESSION.to_rdu(m, v), (NONE,)),
    "sync_buffers_to_cpu": (lambda m, v: SESSION.sync_buffers_to_cpu(v), ()),
    "sync_buffers_to_rdu": (lambda m, v: SESSION.sync_buffers_to_rdu(v), ()),
    "init_output_grads": (lambda m, v: utils.init_output_grads(v), (WORD, DICT)),
    "init_output_grads(customized)": (
        lambda m, v: utils.init_output_grads([], customized_tensors_dict=v), (NONE,)
    ),
    "measure_performance(model)": (lambda m, v: utils.measure_performance(v, batch()), ()),
    "measure_performance(n_iterations)": (
        lambda m, v: utils.measure_performance(m, batch(), n_iterations=v), (NUMBER,)
    ),
    "measure_sections(model)": (lambda m, v: utils.measure_sections(v, batch()), ()),
    "measure_sections(num_sections)": (
        lambda m, v: utils.measure_sections(m, batch(), v, n_iterations=1), (NONE, NUMBER)
    ),
    "sn_data": (lambda m, v: setattr(m.layer.weight, "sn_data", v), ()),
    "sn_grad": (lambda m, v: setattr(m.layer.weight, "sn_grad", v), ()),
}  # fmt: skip


def refuses(call, model, value):
    """Assert that a call raises an error of the package, or says itself what type is wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises((SambaError, CompileError, PefError, TypeError, ValueError)) as caught:
            call(model, value)
    if caught.type in (TypeError, ValueError):
        assert raised_by_the_package(caught), caught.value
    assert len(str(caught.value)) > 10


@pytest.mark.parametrize("name", COMPILES)
def test_before_a_pef_is_loaded(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, fine = COMPILES[name]
    for kind, value in ODD.items():
        if kind not in fine:
            refuses(call, classifier(), value)
            SESSION.reset()


@pytest.mark.parametrize("name", RUNS)
def test_with_a_pef(name, traced, pef):
    call, fine = RUNS[name]
    for kind, value in ODD.items():
        if kind not in fine:
            refuses(call, traced, value)
            if SESSION.device is None:
                utils.trace_graph(traced, batch(), sgd(traced), pef=pef)
