"""While `session.tracing` is set, operators and modules that are called describe their results."""

from __future__ import annotations

import copy

import pytest
import torch
from samba_models import batch, classifier, sgd
from torch import nn
from torch.nn import functional as F

import sambaflow.samba as samba
from sambaflow.samba import SambaError, SambaTensor, utils

MODELS = {
    "convolution": (nn.Conv2d(3, 8, 3, padding=1), (2, 3, 6, 6)),
    "normalisation": (nn.BatchNorm2d(3), (2, 3, 6, 6)),
    "several": (nn.Sequential(nn.Linear(4, 5), nn.Dropout(), nn.ReLU(), nn.Linear(5, 2)), (3, 4)),
}
FUNCTIONS = {
    "relu": F.relu,
    "split": lambda x: x.split(2, dim=1),
    "max": lambda x: x.max(dim=1),
    "add": lambda x: 1 + x,
    "cat": lambda x: torch.cat([x, torch.ones(1, 4)]),
    "getitem": lambda x: x[:, None, 1:],
    "cross_entropy": lambda x: samba.functional.cross_entropy(x, torch.tensor([1, 2, 0])),
    "mean": lambda x: x.bfloat16().mean(),
}


@pytest.fixture
def tracing():
    samba.session.tracing = True
    yield
    samba.session.tracing = False


def tensors(result):
    return [result] if isinstance(result, SambaTensor) else list(result)


def alike(found, wanted):
    """Return whether results are described as those on the host are."""
    return [(f.shape, f.dtype) for f in found] == [(w.shape, w.dtype) for w in wanted]


@pytest.mark.parametrize("converted", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_a_module_that_is_called_traces(tracing, name, converted):
    module, sizes = MODELS[name]
    module = samba.from_torch_model(module) if converted else module
    before = copy.deepcopy(module.state_dict())
    x = samba.randn(*sizes, name="input", batch_dim=0)
    found = tensors(module(x))
    assert x.has_data
    assert not any(tensor.has_data for tensor in found)
    assert all(tensor.requires_grad for tensor in found)
    samba.session.tracing = False
    for key, value in module.state_dict().items():
        # The number of calls is counted by the module itself, which adds to a plain tensor.
        assert key == "num_batches_tracked" or torch.equal(value, before[key])
    wanted = tensors(module(x))
    assert alike(found, wanted)
    assert all(tensor.has_data for tensor in wanted)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_describe_and_name_their_results(tracing, name):
    x = samba.rand(3, 4, name="x")
    for suffix in ("", "_1"):
        found = tensors(FUNCTIONS[name](x))
        assert not any(tensor.has_data for tensor in found)
        names = [f"{name}{suffix}__outputs__{number}" for number in range(len(found))]
        assert [tensor.sn_name for tensor in found] == names
    samba.session.tracing = False
    assert alike(found, tensors(FUNCTIONS[name](x)))


def test_what_is_there_is_read_as_ever(tracing):
    x = samba.ones(2, 3, name="x")
    assert (x.shape, x.dtype, x.dim(), x.requires_grad) == ((2, 3), torch.float32, 2, False)
    assert "tensor([[1., 1., 1.]" in repr(x)
    assert x.torch().sum() == 6
    assert x.data[0, 0].item() == 1
    x.zero_()
    x[0, 0] = 5
    x += 1
    assert x.data.flatten().tolist() == [6, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    "ask", [lambda x: x.sum().item(), lambda x: x.nonzero(), lambda x: x[x > 0]]
)
def test_values_that_are_asked_for_are_told(tracing, ask):
    with pytest.raises(SambaError, match=r"depends on the values of tensors.*session\.tracing"):
        ask(samba.ones(2, 3))


def test_shapes_that_do_not_fit_are_told_by_torch(tracing):
    with pytest.raises(RuntimeError, match=r"\[2, 4\]"):
        samba.ones(2, 3) + samba.ones(2, 4)


def test_a_session_works_while_it_is_set(tmp_path, tracing):
    model = classifier()
    config = {"output_folder": str(tmp_path)}
    pef = samba.session.compile(model, batch(), sgd(model), config_dict=config)
    outputs = utils.trace_graph(model, batch(), sgd(model), pef=pef)
    found = samba.session.run(batch(), outputs)
    assert all(tensor.has_data for tensor in found)
    assert samba.session.tracing
    samba.session.to_cpu(model)
    assert model.layer.weight.has_data
    samba.session.reset()
    assert not samba.session.tracing
