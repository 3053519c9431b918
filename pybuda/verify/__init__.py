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
    a, b = _without_leading_ones(golden), _without_leading_ones(found)
    if a.shape != b.shape:
        raise AssertionError(f"{what} is {[*b.shape]}, expected is {[*a.shape]}")
    if golden.dtype is torch.bool:
        same, correlation = torch.equal(a, b), 0.0
    else:
        a, b = a.double(), b.double()
        limit = config.relative_atol * float(a.nan_to_num().abs().max())
        same = torch.allclose(a, b, rtol=0, atol=limit, equal_nan=True)
        compares = config.golden_compare_callback
        same = same and (compares is None or compares(golden, found))
        correlation = correlated(a, b)
    if not same and correlation < config.pcc:
        apart = (a.double() - b.double()).abs().max()
        raise AssertionError(
            f"{what} is up to {apart:g} from what torch gives; their correlation is "
            f"{correlation:.6f}, expected is {config.pcc}"
        )


def correlated(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return Pearson's coefficient; 0 where it says nothing, 1 for equal and constant tensors."""
    numbers = a.numel() > 1 and bool(a.isfinite().all() and b.isfinite().all())
    if not numbers or bool(a.any()) != bool(b.any()):
        return 0.0
    if torch.equal(a, b) or a.min() == a.max() or b.min() == b.max():
        return 1.0
    return float(torch.corrcoef(torch.stack((a.flatten(), b.flatten())))[0, 1])


def _without_leading_ones(x: torch.Tensor) -> torch.Tensor:
    while x.shape[:1] == (1,):
        x = x[0]
    return x
