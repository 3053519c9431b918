"""Verification tells what differs from what is near."""

from __future__ import annotations

import math

import pytest
import torch
from pybuda_runs import tanh

import pybuda
from pybuda.verify import VerifyConfig, require_golden, verify_module

RAMP = torch.linspace(-1, 1, 64).reshape(8, 8)
NOISE = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
NAN = torch.full((2,), math.nan)


@pytest.mark.parametrize(
    ("golden", "found", "settings", "passes"),
    [
        (RAMP, RAMP + 0.09, {"pcc": 1.1}, True),
        (RAMP, RAMP + 0.11, {"pcc": 1.1}, False),
        (RAMP, RAMP * 3, {}, True),
        (RAMP, RAMP + NOISE, {}, False),
        (RAMP, RAMP + NOISE, {"pcc": 0.3}, True),
        (RAMP, RAMP[None], {}, True),
        (RAMP, RAMP.T.reshape(4, 16), {}, False),
        (RAMP, RAMP, {"golden_compare_callback": lambda a, b: False}, True),
        (RAMP + 0.05, RAMP, {"pcc": 1.1, "golden_compare_callback": lambda a, b: False}, False),
        (RAMP, torch.zeros(8, 8), {}, False),
        (torch.ones(4), torch.full((4,), 2.0), {}, True),
        (torch.ones(1), torch.full((1,), 2.0), {}, False),
        (NAN, NAN, {}, True),
        (torch.zeros(2), NAN, {}, False),
        (torch.tensor([True, False]), torch.tensor([True, False]), {}, True),
        (torch.tensor([True, False]), torch.tensor([True, True]), {}, False),
    ],
)  # fmt: skip
def test_the_rule(golden, found, settings, passes: bool) -> None:
    config = VerifyConfig(**settings)
    if passes:
        require_golden("y", golden, found, config)
        return
    with pytest.raises(AssertionError, match=r"^y is "):
        require_golden("y", golden, found, config)


class Scaled(pybuda.PyBudaModule):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.weights = pybuda.Parameter(NOISE)

    def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
        return pybuda.op.Matmul("product", x, self.weights)


@pytest.mark.parametrize(
    "module", [Scaled("scaled"), pybuda.PyTorchModule("layer", torch.nn.Linear(8, 4))]
)
def test_modules_are_run_on_the_device(module: pybuda.Module) -> None:
    verify_module(module, [(3, 8)])
    verify_module(module, inputs=(RAMP,))
    pybuda.config._get_global_compiler_config().default_df_override = pybuda.DataFormat.Bfp2_b
    with pytest.raises(AssertionError, match=r"output 0 is up to .* from what torch gives"):
        verify_module(module, inputs=(RAMP,), verify_cfg=VerifyConfig(0.9999, 0.001))


def test_what_torch_cannot_run_is_refused() -> None:
    with pytest.raises(pybuda.PyBudaError, match="'tanh' is an ONNX model"):
        verify_module(pybuda.OnnxModule("tanh", tanh(2)), [(1, 2)])
