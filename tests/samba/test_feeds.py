"""What runs are given is copied: the memory of the device is its own, whatever the size."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import sambaflow.samba as samba
from sambaflow.samba import SambaError, utils

SIZES = {"small": 4, "large": 20_000}


class Sum(nn.Module):
    def forward(self, x, y):
        return x * 2 + y


def inputs(size, fill=1.0):
    return tuple(samba.from_torch_tensor(torch.full((2, size), fill), name=n) for n in ("x", "y"))


@pytest.fixture(scope="module", params=SIZES.values(), ids=SIZES)
def size(request):
    return request.param


@pytest.fixture(scope="module")
def pef(size, tmp_path_factory):
    config = {"output_folder": str(tmp_path_factory.mktemp("out")), "inference": True}
    return samba.session.compile(Sum(), inputs(size), None, "sum", config_dict=config)


@pytest.fixture
def run(pef, size):
    outputs = utils.trace_graph(Sum(), inputs(size), None, pef=pef)

    def values(*given):
        (found,) = samba.session.run(given or None, outputs)
        assert found.shape == (2, size)
        assert (found == found[0, 0]).all()
        return found[0, 0].item()

    yield values
    samba.session.reset()


def test_inputs_stay_until_others_are_given(run, size):
    x, y = inputs(size)
    assert run(x, y) == 3
    assert run() == 3
    assert run(inputs(size, 5.0)[0]) == 11
    assert run() == 11
    assert run(inputs(size, 7.0)[1]) == 17
    assert run(x, y) == 3


def test_results_of_a_run_are_not_those_of_the_next(pef, size):
    outputs = utils.trace_graph(Sum(), inputs(size), None, pef=pef)
    (first,) = samba.session.run(inputs(size), outputs)
    (second,) = samba.session.run(inputs(size, 2.0), outputs)
    assert (first[0, 0].item(), second[0, 0].item()) == (3, 6)
    samba.session.reset()


def test_tensors_with_gaps_and_with_gradients_count_as_what_they_show(run, size):
    x, y = inputs(size)
    assert run(x, y) == 3
    apart = torch.stack([torch.full((2, size), 3.0), torch.zeros(2, size)], dim=-1)[..., 0]
    assert not apart.is_contiguous()
    assert run(samba.from_torch_tensor(apart, name="x")) == 7
    wanting = samba.from_torch_tensor(torch.full((2, size), 4.0, requires_grad=True), name="x")
    assert run(wanting) == 9


def test_wrong_tensors_are_refused_and_right_ones_run_again(run, size):
    x, y = inputs(size)
    assert run(x, y) == 3
    wrong = samba.from_torch_tensor(torch.ones(3, size), name="x")
    with pytest.raises(SambaError, match=rf"'x' has shape \[3, {size}\]"):
        run(wrong, y)
    doubles = samba.from_torch_tensor(torch.ones(2, size, dtype=torch.float64), name="x")
    with pytest.raises(SambaError, match="'x' is float64"):
        run(doubles, y)
    with pytest.raises(SambaError, match="no input 'z'; the inputs are 'x', 'y'"):
        run(samba.from_torch_tensor(torch.ones(2, size), name="z"))
    assert run(x, y) == 3


def test_the_device_holds_what_it_was_given(run, size):
    x, y = inputs(size)
    run(x, y)
    assert (x.sn_data == 1).all()
    x.sn_data = torch.full((2, size), 6.0)
    assert (x.sn_data == 6).all()
    assert (x == 1).all()
    assert run() == 13


def test_a_tensor_changed_later_changes_nothing_on_the_device(run, size):
    x, y = inputs(size)
    gaps = samba.from_torch_tensor(torch.ones(2, 2 * size)[:, ::2], name="y")
    for other in (y, gaps):
        assert run(x, other) == 3
        x.data.fill_(9.0), other.data.fill_(9.0)
        assert (x.sn_data == 1).all()
        assert (other.sn_data == 1).all()
        assert run() == 3
        x.data.fill_(1.0), other.data.fill_(1.0)


class Scaled(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x * self.scale


@pytest.mark.parametrize("parts", [[[]], [["FWD"], ["BCKWD"]], [["FWD"], ["BCKWD", "OPT"]]])
def test_gradients_that_were_given_are_the_devices_own(size, parts, tmp_path):
    model = samba.from_torch_model(Scaled(size))
    optimizer = samba.optim.SGD(model.parameters(), lr=0.0)
    x = samba.from_torch_tensor(torch.ones(2, size), name="x")
    config = {"output_folder": str(tmp_path)}
    pef = samba.session.compile(model, (x,), optimizer, "scaled", config_dict=config)
    (output,) = utils.trace_graph(model, (x,), optimizer, pef=pef)
    gradient = torch.full((2, size), 3.0)
    for given, wanted in ((None, 2), ([gradient], 6), (None, 6)):
        for number, kinds in enumerate(parts):
            first = ((x,), given) if number == 0 else (None, None)
            samba.session.run(first[0], section_types=kinds, grad_of_outputs=first[1])
            x.data.fill_(5.0), gradient.fill_(5.0)
        assert (model.scale.sn_grad == wanted).all()
        assert (output.sn_grad == wanted / 2).all()
        x.data.fill_(1.0), gradient.fill_(3.0)
    utils.trace_graph(model, (x,), optimizer, pef=pef)
    assert (output.sn_grad == 1).all()
