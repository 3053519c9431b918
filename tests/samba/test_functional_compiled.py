"""A model made of samba's functions is compiled, and the device gives what the host gives."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import sambaflow.samba as samba
from sambaflow.samba import utils


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.bias = nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> object:
        y = samba.addmm(self.bias, x, self.weight, is_transposed=True)
        scores = samba.matmul(y, samba.transpose(y, -2, -1))
        causal = samba.triu_fill(scores, float("-inf"))
        return samba.functional.softmax(causal, dim=-1)


def test_functions_run_on_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    samba.set_seed(0)
    model = _Attention()
    samba.from_torch_model_(model)
    x = samba.randn(2, 3, 4, name="x")
    samba.session.reset()
    try:
        pef = samba.session.compile(model, (x,), name="attention", inference=True)
        outputs = utils.trace_graph(model, (x,), pef=pef)
        found = samba.session.run((x,), outputs)[0]
    finally:
        samba.session.reset()
    expected = model(x)
    assert type(found) is samba.SambaTensor
    assert torch.allclose(found, expected, atol=1e-5)
    assert found[0, 0].tolist() == [1, 0, 0]
