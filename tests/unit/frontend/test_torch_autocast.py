"""Normalisations under autocast, whose parameters are wider than what they normalise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sambac
import sambarun

_LAYERS = {
    "batch": lambda: nn.BatchNorm1d(4),
    "group": lambda: nn.GroupNorm(2, 4),
    "instance": lambda: nn.InstanceNorm1d(4, affine=True),
    "layer": lambda: nn.LayerNorm(6),
    "layer without shift": lambda: nn.LayerNorm(6, bias=False),
    "rms": lambda: nn.RMSNorm(6),
}


class _Mixed(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 1)
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (self.norm(self.conv(x)).float() * torch.arange(6)).square().mean()


@pytest.mark.parametrize("name", _LAYERS)
def test_they_infer_and_train(name: str) -> None:
    torch.manual_seed(0)
    module, x = _Mixed(_LAYERS[name]()), torch.randn(3, 4, 6)
    with sambarun.load(sambac.compile(module, inputs=(x,))) as executable:
        found = executable.run({"x": x.numpy()})["output"]
    np.testing.assert_allclose(found, module.eval()(x).item(), rtol=1e-2)
    module.train()
    with sambarun.load(
        sambac.compile(module, sambac.CompileOptions(train=True), inputs=(x,))
    ) as executable:
        found = executable.step({"x": x.numpy()})["output"]
        want = module(x)
        np.testing.assert_allclose(found, want.item(), rtol=1e-2)
        want.backward()
        for key, parameter in module.norm.named_parameters():
            gradient = executable.read(f"norm.{key}__grad")[f"norm.{key}__grad"]
            expected = parameter.grad.numpy()
            np.testing.assert_allclose(
                gradient, expected, atol=0.03 * abs(expected).max(), err_msg=key
            )
