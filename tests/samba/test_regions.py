"""Tensors of one graph in one region: what an output leaves there, an input reads later."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import pef as pef_format
import sambaflow.samba as samba
from sambaflow.samba import SambaError, utils


class _Running(nn.Module):
    """A cache that decays, and takes in what comes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((4,), 0.5))

    def forward(self, x: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        """x [4], cache [4]."""
        cache = cache * self.weight + x
        return cache.sum(), cache


CACHE = "_running__add__outputs__0"


@pytest.fixture(autouse=True)
def _anew():
    samba.session.reset()
    yield
    samba.session.reset()


def _inputs(region: str | None = CACHE, width: int = 4) -> tuple[samba.SambaTensor, ...]:
    x = samba.from_torch_tensor(torch.ones(4), name="x")
    cache = samba.from_torch_tensor(torch.zeros(width), name="cache")
    if region is not None:
        cache.sn_region_name = region
    return x, cache


def _compiled(tmp_path, **keywords) -> str:
    model = samba.from_torch_model(_Running())
    config = {"output_folder": str(tmp_path)}
    return samba.session.compile(model, _inputs(), config_dict=config, **keywords)


def test_a_run_reads_what_the_one_before_has_left(tmp_path):
    pef = _compiled(tmp_path, inference=True)
    with pef_format.open(pef) as file:
        program = file.program
    places = {
        (symbol.allocation, symbol.offset)
        for graph in program.graphs
        for port in (*graph.inputs, *graph.outputs)
        if port.name in ("cache", "output_1")
        for symbol in [program.symbols[port.symbol]]
    }
    assert len(places) == 1

    model = samba.from_torch_model(_Running())
    x, cache = _inputs()
    outputs = utils.trace_graph(model, (x, cache), pef=pef)
    samba.session.run((x, cache), outputs)
    (total, second) = samba.session.run((x,), outputs)
    assert second.tolist() == [1.5] * 4
    assert total.item() == 6.0
    (third,) = samba.session.run((x,), outputs[1:])
    assert third.tolist() == [1.75] * 4
    assert cache.tolist() == [0.0] * 4  # the application's own tensor
    (anew,) = samba.session.run((x, cache), outputs[1:])
    assert anew.tolist() == [1.0] * 4


def test_without_a_region_an_input_keeps_its_value(tmp_path):
    model = samba.from_torch_model(_Running())
    x, cache = _inputs(None)
    config = {"output_folder": str(tmp_path)}
    pef = samba.session.compile(model, (x, cache), config_dict=config, inference=True)
    outputs = utils.trace_graph(model, (x, cache), pef=pef)
    samba.session.run((x, cache), outputs)
    assert samba.session.run((x,), outputs)[1].tolist() == [1.0] * 4


class _Sum(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


def _compile(model, inputs, optimizer=None):
    with pytest.raises(SambaError) as caught:
        samba.session.compile(samba.from_torch_model(model), inputs, optimizer)
    return str(caught.value)


def test_two_inputs_cannot_be_one():
    x, y = (samba.from_torch_tensor(torch.ones(4), name=n, region_name="r") for n in "xy")
    text = _compile(_Sum(), (x, y))
    assert "'r' of input 'x' float32[4], input 'y' float32[4]: what is written last" in text


def test_sizes_have_to_be_equal():
    x = samba.from_torch_tensor(torch.ones(4), name="x", region_name="_sum__add__outputs__0")
    y = samba.from_torch_tensor(torch.ones(3, 1), name="y")
    text = _compile(_Sum(), (x, y))
    assert "input 'x' float32[4], output '_sum__add__outputs__0' float32[3, 4]: they differ" in text


def test_training_needs_memory_for_each():
    model = samba.from_torch_model(_Running())
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    assert "compile for inference" in _compile(model, _inputs(), optimizer)


def test_parameters_are_shared_by_being_one(tmp_path):
    model = samba.from_torch_model(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))
    for layer in model:
        layer.weight.sn_region_name = "weight"
    x = samba.randn(2, 4, name="x")
    assert "let both modules hold one parameter" in _compile(model, x)
    model[1].weight = model[0].weight
    config = {"output_folder": str(tmp_path)}
    assert samba.session.compile(model, x, inference=True, config_dict=config)
