"""The examples of the API's page about sessions, each as it is written there, or nearly.

Where an example contradicts the page itself, the test says how, and changes no more than that.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

import sambaflow.samba as samba
from sambaflow.samba import utils


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    """Run each example in a folder of its own: `compile` writes into `out`."""
    monkeypatch.chdir(tmp_path)
    yield
    samba.session.reset()


def compiled(model, inputs, optimizer=None):
    return samba.session.compile(model, inputs, optimizer)


def test_compile_a_model_with_one_input_and_an_optimizer(tmp_path):
    model = torch.nn.Linear(10, 10)
    samba.from_torch_model_(model)
    torch_input = torch.randn(5, 10)
    ipt = samba.from_torch_tensor(torch_input, name="input")
    optim = samba.optim.SGD(model.parameters(), lr=0.1)
    path = samba.session.compile(model, (ipt,), optim)
    assert (tmp_path / path).is_file()
    assert (tmp_path / "out" / "linear" / "linear.pef.log").is_file()


def test_run_the_schedule_and_the_forward_sections():
    """The page has `nn.BiLinear(10, 10)`, which torch does not: Linear is meant.

    It calls `run(model, inputs, outputs)`, which its own signature, `run(input_tensors,
    output_tensors)`, does not take: the model is left out.
    """
    model = nn.Linear(10, 10)
    samba.from_torch_model_(model)
    optim = samba.optim.SGD(model.parameters(), lr=0.1)
    ipt = samba.randn(5, 10, name="input")
    path_to_pef = compiled(model, (ipt,), optim)
    before = model.weight.detach().clone().torch()

    utils.trace_graph(model, (ipt,), optim, init_output_grads=True, pef=path_to_pef)
    samba_outputs = samba.session.run((ipt,), model.output_tensors)
    wanted = nn.functional.linear(ipt.torch(), before, model.bias.torch())
    torch.testing.assert_close(samba_outputs[0].torch(), wanted.detach())
    trained = model.weight.sn_data
    assert not torch.equal(trained, before)

    samba_outputs = samba.session.run((ipt,), model.output_tensors, section_types=["FWD"])
    assert samba_outputs[0].shape == (5, 10)
    assert torch.equal(model.weight.sn_data, trained)


def test_the_model_as_first_argument_of_run_is_told_apart():
    """As the page has it; what is wrong with it is said."""
    model = samba.from_torch_model(nn.Linear(10, 10))
    ipt = samba.randn(5, 10, name="input")
    utils.trace_graph(model, (ipt,), pef=compiled(model, (ipt,)))
    with pytest.raises(samba.SambaError, match=r"run got a model .*leave the model out"):
        samba.session.run(model, (ipt,), model.output_tensors)


def test_profile_what_the_frontend_does(tmp_path):
    """The page defines neither `input_tensors` nor `output_tensors`."""
    model = samba.from_torch_model(nn.Linear(10, 10))
    input_tensors = (samba.randn(5, 10, name="input"),)
    output_tensors = utils.trace_graph(model, input_tensors, pef=compiled(model, input_tensors))
    with samba.session.samba_profile("dump.txt"):
        samba.session.run(input_tensors, output_tensors)
    table = (tmp_path / "dump.txt").read_text()
    assert all(word in table for word in ("PyRT_RUN", "PyRT_SET_TENSORS", "PyRT_GET_TENSORS"))


def test_loss_indices_as_the_page_explains_them():
    """`outputs=[out0, out1, loss0, loss1]`, `loss_indices=[2, 3]`; the type says tuples."""

    class Four(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x):
            out0, out1 = self.layer(x), torch.tanh(self.layer(x))
            return out0, out1, out0.mean(), out1.mean()

    for indices in ([2, 3], [(2,), (3,)]):
        model = samba.from_torch_model(Four())
        x = samba.randn(2, 3, name="x")
        optim = samba.optim.SGD(model.parameters(), lr=0.1)
        path = samba.session.compile(model, (x,), optim, loss_indices=indices)
        outputs = utils.trace_graph(model, (x,), optim, loss_indices=indices, pef=path)
        samba.session.run((x,), outputs, section_types=["FWD", "BCKWD"])
        loss0, loss1 = model(x)[2:]
        (loss0 + loss1).backward()
        torch.testing.assert_close(
            model.layer.weight.sn_grad, samba.to_torch(model.layer.weight.grad)
        )


def test_section_types_that_a_pef_has():
    model = samba.from_torch_model(nn.Linear(10, 10))
    ipt = samba.randn(5, 10, name="input")
    optim = samba.optim.SGD(model.parameters(), lr=0.1)
    utils.trace_graph(model, (ipt,), optim, pef=compiled(model, (ipt,), optim))
    assert {"FWD", "BCKWD", "OPT"} <= samba.session.get_section_types()
    assert "lr" in {name.rpartition(".")[2] for name in samba.session.get_argin_names()}


def test_a_second_session_loads_the_pef_at_once():
    model = samba.from_torch_model(nn.Linear(10, 10))
    path = compiled(model, (samba.randn(5, 10, name="input"),))
    other = samba.SambaSession(path)
    assert other.get_section_types() == {"FWD"}
    samba.session.reset(path)
    assert set(samba.session.get_weight_names()) == {"linear__weight", "linear__bias"}
