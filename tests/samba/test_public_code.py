"""What public applications rely on: shared numbers, outputs called like inputs, patched code."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

import sambaflow.samba as samba
from sambaflow.samba import SambaError, utils
from sambaflow.samba.graph import FwdGraph

LAST = 5


class Shelf:
    """Keeps what is made once, as public model code does."""

    def __init__(self):
        self.kept = {}

    def get(self, key, make):
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]


shelf = Shelf()


def passed_on(function):
    """Stand for `function`, which is in the closure alone."""

    @functools.wraps(function)
    def stand_in(*args, **kwargs):
        return function(*args, **kwargs)

    return stand_in


class Plain(nn.Module):
    """What public model code patches: its own `forward` takes one argument."""

    def forward(self, place):
        return place


def taking_more(original):
    """Take a keyword that `original`, whose signature it shows, does not know."""

    @functools.wraps(original)
    def stand_in(self, *args, **kwargs):
        return scaled(self, *args, **kwargs)

    return stand_in


def scaled(module, place, factor=None):
    return original_forward(module, place) * factor


original_forward = Plain.forward


class Patched(Plain):
    forward = taking_more(Plain.forward)


class Advance(nn.Module):
    """The next place: int32 and a Python number make int64 in torch."""

    @passed_on
    def forward(self, place, text):
        step = shelf.get("step", lambda: torch.ones(1, 1, dtype=torch.int32))
        following = torch.minimum(place + step, torch.full((1, 1), LAST))
        return {"place": following, "text": text + following.int()}


def place(value=0, dtype=torch.int32):
    return samba.from_torch_tensor(torch.full((1, 1), value, dtype=dtype), name="place")


def text():
    return samba.from_torch_tensor(torch.zeros(1, 3, dtype=torch.int32), name="text")


def traced():
    outputs = utils.trace_multigraph(Advance(), (place(), text()), trace_prefix="go")
    outputs[0].sn_region_name, outputs[1].sn_region_name = "place", "text"
    samba.session.add_graph(FwdGraph((place(), text()), outputs, name="go"))
    return outputs


@pytest.fixture(scope="module")
def pef(tmp_path_factory):
    samba.session.reset()
    traced()
    folder = str(tmp_path_factory.mktemp("out"))
    path = samba.session.compile_multigraph(name="go", config_dict={"output_folder": folder})
    samba.session.reset()
    return path


def test_an_output_is_what_an_input_of_its_name_reads_next(pef):
    outputs = traced()
    samba.session.init_multigraph_runtime(pef)
    samba.session.run((place(), text()), graph_name="go")
    for step in range(2, LAST + 2):
        found = samba.session.run(output_tensors=outputs, graph_name="go")
        assert found[0].torch().tolist() == [[min(step, LAST)]]
    assert found[1].torch().tolist() == [[1 + 2 + 3 + 4 + 5 + 5] * 3]
    assert found[0].dtype is torch.int32  # the type of what shares its memory


def test_wider_numbers_are_taken_if_they_fit(pef):
    outputs = traced()
    samba.session.init_multigraph_runtime(pef)
    wide = place(3, torch.int64)
    found = samba.session.run((wide, text()), outputs, graph_name="go")
    assert found[0].torch().tolist() == [[4]]
    with pytest.raises(SambaError, match="'place' is int64"):
        samba.session.run((place(1 << 40, torch.int64), text()), graph_name="go")


def test_what_decorated_code_keeps_is_no_stand_in_afterwards(pef):
    shelf.kept.clear()
    traced()
    assert not shelf.kept
    assert pef


def test_a_decorator_may_take_more_than_what_it_shows(tmp_path):
    model = Patched()
    inputs = {
        "place": samba.from_torch_tensor(torch.ones(2), name="place"),
        "factor": samba.from_torch_tensor(torch.full((2,), 3.0), name="factor"),
    }
    config = {"output_folder": str(tmp_path)}
    path = samba.session.compile(model, inputs, config_dict=config)
    outputs = utils.trace_graph(model, inputs, pef=path)
    assert samba.session.run(inputs, outputs)[0].torch().tolist() == [3.0, 3.0]
    with pytest.raises(TypeError, match=r"inputs do not fit Plain.forward.*'factor'"):
        samba.session.compile(Plain(), inputs, config_dict=config)
