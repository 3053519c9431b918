"""Recurrent layers of which one step is run give the models that all steps would."""

from __future__ import annotations

import copy
from contextlib import nullcontext

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import nn
from torch._decomp import decomposition_table, decompositions

import sambac
import sambarun
from pef.graphs import data_inputs
from sambac.frontend.torch import loading
from sambac.frontend.torch.loading import load_torch
from sambac.frontend.torch.recording import one_step
from sambac.options import CompileOptions

LAYERS = {
    "LSTM": nn.LSTM(3, 4),
    "LSTM both ways": nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True, dropout=0.5),
    "GRU": nn.GRU(3, 4, 2, bias=False, batch_first=True),
    "GRU both ways": nn.GRU(3, 4, bidirectional=True),
    "RNN": nn.RNN(3, 4, 2, nonlinearity="relu", dropout=0.5),
    "RNN both ways": nn.RNN(3, 4, bidirectional=True, batch_first=True),
}


class Seen(nn.Module):
    """A layer, of whose results all are used, one as it lies in memory."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x):
        states, last = self.layer(x)
        flat = states.view(-1, states.shape[2]) if not self.layer.batch_first else states
        return flat.tanh(), states[-1], *(last if isinstance(last, tuple) else (last,))


def parts(module: nn.Module, x: torch.Tensor) -> list[str]:
    source = load_torch(module, CompileOptions(train=True), (x,))
    models = [model for model in (source.model, source.evaluation) if model is not None]
    return [
        str((node, [value.shape for value in node.outputs], dict(node.metadata_props)))
        for model in models
        for node in ir.traversal.RecursiveGraphIterator(model.graph)
    ]


@pytest.mark.parametrize("name", LAYERS)
def test_models_are_as_all_steps_make_them(name: str, monkeypatch: pytest.MonkeyPatch):
    module, x = Seen(LAYERS[name]), torch.randn(5, 2, 3)
    found = parts(module, x)
    monkeypatch.setattr(loading, "one_step_for_all", nullcontext)
    assert found == parts(module, x)


def test_long_sequences_are_no_more_work(monkeypatch: pytest.MonkeyPatch):
    cell, steps = decompositions.lstm_cell, []

    def counted(*given, **named):
        steps.append(given)
        return cell(*given, **named)

    monkeypatch.setattr(decompositions, "lstm_cell", counted)
    counts = []
    for length in (2, 20):
        steps.clear()
        load_torch(nn.LSTM(3, 4), CompileOptions(train=True), (torch.randn(length, 2, 3),))
        counts.append(len(steps))
    assert counts[0] == counts[1] > 0


def test_what_pytorch_has_is_put_back():
    before = [(dict(op.py_kernels), decomposition_table[op]) for op in one_step._LAYERS]
    load_torch(nn.GRU(3, 4), CompileOptions(), (torch.randn(5, 2, 3),))
    assert before == [(dict(op.py_kernels), decomposition_table[op]) for op in one_step._LAYERS]
    x, layer = torch.randn(5, 2, 3), nn.RNN(3, 4)
    with one_step.one_step_for_all():
        real = layer(x)[0]
    assert torch.equal(real, layer(x)[0])


@pytest.mark.filterwarnings("ignore")
def test_steps_that_somebody_records_are_all_there():
    layer, x = nn.LSTM(3, 4), torch.randn(5, 2, 3)
    with one_step.one_step_for_all():
        program = torch.export.export(layer, (x,)).run_decompositions()
    found, expected = program.module()(x)[0], layer(x)[0]
    assert torch.allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("kind", LAYERS)
def test_the_number_of_steps_may_be_open(kind: str):
    layer = copy.deepcopy(LAYERS[kind]).eval()
    steps = int(layer.batch_first)
    shape = [5, 2, 3]
    open_ = {steps: torch.export.Dim("steps", min=2)}
    program = sambac.compile(layer, inputs=(torch.randn(shape),), dynamic_shapes=(open_,))
    (name,) = (port.name for port in data_inputs(program.graphs[0]))
    with sambarun.load(program) as executable:
        for length in (2, 7, 5):
            shape[steps] = length
            x = torch.randn(shape)
            found = next(iter(executable.run({name: x.numpy()}).values()))
            np.testing.assert_allclose(found, layer(x)[0].detach().numpy(), rtol=1e-4, atol=1e-5)
