"""Layers with weights of eight bits, or split into magnitude and direction, on the device."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from sambaflow import samba
from sambaflow.frameworks.quantized.quantized_linear import QuantizedLinear
from sambaflow.samba.directives import op_fusion
from sambaflow.samba.optim import SGD
from sambaflow.samba.tensors.creation import randn
from sambaflow.samba.utils import assert_close, trace_graph, weight_norm_


@pytest.fixture(autouse=True)
def _session_as_before() -> Iterator[None]:
    yield
    samba.session.reset()


class _Quantized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = QuantizedLinear.from_float(nn.Linear(6, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with op_fusion(func_name="layer"):
            return torch.relu(self.layer(x))


def test_a_weight_of_eight_bits(tmp_path: Path) -> None:
    torch.manual_seed(1)
    model, x = _Quantized(), randn(3, 6, name="x")
    config = {"output_folder": str(tmp_path), "inference": True}
    pef = samba.session.compile(model, (x,), config_dict=config)
    outputs = trace_graph(model, (x,), pef=pef)
    assert_close(samba.session.run((x,), outputs)[0], model(x), "output", threshold=1e-5)


class _Squares(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        squares: torch.Tensor = self.layer(x).pow(2).mean()
        return squares


def test_magnitude_and_direction_train(tmp_path: Path) -> None:
    torch.manual_seed(2)
    model, x = _Squares(), randn(3, 6, name="x")
    samba.from_torch_model_(model)
    weight_norm_(model.layer)
    optimizer = SGD(model.parameters(), lr=0.1)
    pef = samba.session.compile(
        model, (x,), optimizer, config_dict={"output_folder": str(tmp_path)}
    )
    outputs = trace_graph(model, (x,), optimizer, pef=pef)
    expected = model(x)
    expected.backward()
    found = samba.session.run((x,), outputs, section_types=["fwd", "bckwd"])
    assert_close(found[0], expected, "loss", threshold=1e-5)
    for name, parameter in model.named_parameters():
        assert_close(parameter.sn_grad, parameter.grad, name, threshold=1e-5)  # type: ignore[attr-defined]
    names = ["_squares__layer__weight_magnitude", "_squares__layer__weight_direction"]
    before, _ = samba.session.get_tensors_by_name(names)
    samba.session.run((x,), outputs, section_types=["opt"])
    after, _ = samba.session.get_tensors_by_name(names)
    assert not torch.equal(before.data, after.data)
