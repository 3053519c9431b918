"""How tensors come by their names, as the page says."""

from __future__ import annotations

import pytest
import torch
from samba_models import batch, classifier, sgd
from torch import nn

import pef as pef_format
import sambaflow.samba as samba
from sambaflow.samba import SambaError, utils
from sambaflow.samba.trace.call import call_of
from sambaflow.samba.trace.tracing import trace


class Twice(nn.Module):
    """Operators of one name, nested inputs, and an output that is an input."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x, caches):
        first = self.blocks[0](x) + caches["keys"]
        second = self.blocks[1](first) + caches["keys"]
        return first, second, second.reshape(-1), x


def traced_names(model, inputs, prefix=""):
    samba.from_torch_model_(model)
    call = call_of(model, inputs)
    traced = trace(model, call, prefix)
    return [item.tensor.sn_name for item in call.tensors], [out.sn_name for out in traced.outputs]


def test_names_of_the_table():
    inputs = {"x": samba.zeros(2, 4, name="mine"), "caches": {"keys": torch.zeros(2, 4)}}
    given, outputs = traced_names(Twice(), inputs)
    assert given == ["mine", "caches_keys"]
    assert outputs == [
        "twice__add__outputs__0",
        "twice__add_1__outputs__0",
        "twice__reshape__outputs__0",
        "twice__identity__outputs__3",
    ]
    named = Twice()
    named.name = "net"
    _, outputs = traced_names(named, (torch.zeros(2, 4), {"keys": torch.zeros(2, 4)}), "p__")
    assert outputs[0] == "p__net__add__outputs__0"
    assert named.blocks[1].weight.sn_name == "net__blocks__1__weight"


def test_inputs_in_a_list_have_the_name_of_their_place():
    class Sum(nn.Module):
        def forward(self, parts):
            return parts[0] + parts[1]

    given, _ = traced_names(Sum(), ([torch.zeros(2), torch.zeros(2)],))
    assert given == ["parts_0", "parts_1"]


def test_names_are_equal_each_time():
    assert traced_names(classifier(), batch()) == traced_names(classifier(), batch())


def test_what_crosses_sections_is_read_by_its_name_in_the_pef(tmp_path):
    torch.manual_seed(0)
    model = samba.from_torch_model(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)))
    x = samba.randn(5, 4, name="x")
    config = {"output_folder": str(tmp_path), "optim_level": "o0"}
    path = samba.session.compile(model, x, config_dict=config)
    with pef_format.open(path) as file:
        inner = file.program.symbols[file.program.sections[0].outputs[0]].name
    samba.session.reset()
    wanted = nn.functional.linear(x.torch(), *(p.detach().torch() for p in model[0].parameters()))
    outputs = utils.trace_graph(model, x, pef=path)
    samba.session.run(x, outputs)
    with pytest.raises(SambaError, match=f"'{inner}' has no value now"):
        samba.session.get_tensors_by_name([inner])
    samba.session.run(x, section_ids=[0])
    (found,) = samba.session.get_tensors_by_name([inner])
    torch.testing.assert_close(found.torch(), wanted)
    samba.session.reset()


def test_states_of_optimizers_and_gradients_have_names(tmp_path):
    model = classifier(0.0)
    optimizer = sgd(model)
    config = {"output_folder": str(tmp_path)}
    path = samba.session.compile(model, batch(), optimizer, config_dict=config)
    outputs = utils.trace_graph(model, batch(), optimizer, pef=path)
    samba.session.run(batch(), outputs)
    name = "classifier__layer__weight"
    assert f"{name}__momentum_buffer" in samba.session.optim_dict
    for suffix in ("", "__momentum_buffer"):
        (found,) = samba.session.get_tensors_by_name([name + suffix])
        assert found.shape == (3, 4)
    samba.session.run(batch(), outputs, section_types=["fwd", "bckwd"])
    assert samba.session.get_tensors_by_name([f"{name}__grad"])[0].abs().sum() > 0
    samba.session.reset()
