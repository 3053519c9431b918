"""Verification: what the device gives for a module, against what torch gives on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from pybuda.errors import PyBudaError
from pybuda.microbatch import Microbatch, joined
from pybuda.module import Module
from pybuda.recorded import leaves
from pybuda.tensor import SomeTensor
from sambahost.golden import GoldenRule
from sambahost.models import in_mode


@dataclass(frozen=True)
class VerifyConfig:
    """How near results must be: within a share of the largest magnitude, or by correlation.

    `golden_compare_callback` has to agree to the first, with the golden tensor and the found one.
    """

    pcc: float = 0.99
    relative_atol: float = 0.1
    golden_compare_callback: Callable[[torch.Tensor, torch.Tensor], bool] | None = None


def verify_module(
    module: Module,
    input_shapes: Sequence[Sequence[int]] = (),
    verify_cfg: VerifyConfig | None = None,
    *,
    inputs: Sequence[SomeTensor] = (),
) -> None:
    """Raise `AssertionError` unless the device and torch give the same, in inference.

    Inputs are `inputs`, or drawn for `input_shapes`, whose first dimension is the microbatch.
    """
    part = module.part()
    if not isinstance(part, torch.nn.Module):
        raise PyBudaError(f"'{module.get_name()}' is an ONNX model, which torch cannot run")
    given = inputs or [(torch.randn(*shape) * 0.1 + 0.5).abs() + 1e-5 for shape in input_shapes]
    batch = Microbatch.of((tuple(given),))
    with in_mode(part, training=False), torch.no_grad():
        golden = joined([leaves(part(*sample)) for sample in batch.samples()])
    for index, (wanted, found) in enumerate(zip(golden, module.run(*batch.tensors), strict=True)):
        require_golden(f"output {index}", wanted, found.value(), verify_cfg or VerifyConfig())


def require_golden(
    what: str, golden: torch.Tensor, found: torch.Tensor, config: VerifyConfig
) -> None:
    """Raise `AssertionError` unless `found` is near `golden`, by the original's rule."""
    rule = GoldenRule(config.pcc, config.relative_atol, compares=config.golden_compare_callback)
    if told := rule.complaint(golden, found):
        raise AssertionError(f"{what} {told}")
