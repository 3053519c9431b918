"""How near results are to what they must be: within a share of the largest, or by correlation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch

from pef.arguments import BY_NAME, LIMIT, NUMBER, WHOLE, Kind, instance

if TYPE_CHECKING:
    import onnx

Compares: TypeAlias = "Callable[[torch.Tensor, torch.Tensor], bool]"
Tolerance: TypeAlias = "float | Mapping[torch.dtype, float] | None"


def _is_tolerance(value: object) -> bool:
    """Tell whether each number of a tolerance is a limit; NaN passes nothing, infinity all."""
    by_type = value if isinstance(value, Mapping) else {torch.float32: value}
    types = all(isinstance(dtype, torch.dtype) for dtype in by_type)
    return types and all(LIMIT.or_none().fits(each) for each in by_type.values())


_TOLERANCE = Kind(f"{LIMIT.words}, or a dict of them by type of torch, or None", _is_tolerance)
_FINITE = Kind("a number that is not infinite", lambda value: LIMIT.fits(_size(value)))

_FUNCTION = Kind("a function", callable).or_none()
_LIST = instance((list, tuple), "a list")  # a text would be one of letters

KINDS: Mapping[str, Kind] = {
    "pcc": _FINITE.or_none(),  # more than 1 is what no correlation reaches
    "rtol": _TOLERANCE,
    "atol": _TOLERANCE,
    "relative_atol": LIMIT,
    "scale_loss": _FINITE,
    **dict.fromkeys(
        ("epochs", "steps", "accumulation_steps", "microbatch_count"), WHOLE.at_least(1)
    ),
    "checkpoint_interval": WHOLE.at_least(0),
    **dict.fromkeys(
        (
            *("enabled", "sequential", "verify_all"),
            *("enable_input_gradient_checking", "enable_parameter_gradient_checking"),
        ),
        instance(bool, "a bool"),
    ),
    **dict.fromkeys(("golden_compare_callback", "scheduler"), _FUNCTION),
    **dict.fromkeys(("waive_gradient_errors", "epoch_breaks", "chip_breaks"), _LIST),
    "optimizer": BY_NAME.or_none(),
}
"""What settings may be that say what is verified and how, and how much is run for it."""


def _size(value: object) -> object:
    """Return the magnitude of a number, and whatever else as it is."""
    return abs(float(value)) if NUMBER.fits(value) else value  # type: ignore[arg-type]  # a number


@dataclass(frozen=True)
class GoldenRule:
    """What passes: nearness to which `compares` agrees, or a correlation of at least `pcc`.

    Near is within `atol` and a share `rtol` of each element; both are for all types, or by type.
    Without `atol` it is a share `relative_atol` of the largest magnitude. Without `pcc` nearness is
    needed.
    """

    pcc: float | None = 0.99
    relative_atol: float = 0.1
    rtol: Tolerance = None
    atol: Tolerance = None
    compares: Compares | None = None

    def complaint(self, golden: torch.Tensor, found: torch.Tensor) -> str:
        """Return why `found` does not pass beside `golden`, nothing if it does.

        Leading dimensions of 1 are left out. Booleans have to be equal.
        """
        a, b = _without_leading_ones(golden), _without_leading_ones(found)
        if a.shape != b.shape:
            return f"is {[*b.shape]}, expected is {[*a.shape]}"
        if golden.dtype is torch.bool:
            passes, known = torch.equal(a, b), 0.0
        else:
            known = correlated(a.double(), b.double())
            near = self._near(a, b) and (self.compares is None or self.compares(golden, found))
            passes = near or (self.pcc is not None and known >= self.pcc)
        apart = (a.double() - b.double()).abs().max() if a.numel() else 0.0
        told = f"their correlation is {known:.6f}, expected is {self.pcc or 'nearness'}"
        return "" if passes else f"is up to {apart:g} from what torch gives; {told}"

    def require(self, what: str, golden: torch.Tensor, found: torch.Tensor) -> None:
        """Raise `AssertionError` unless `found`, which is `what`, passes beside `golden`."""
        if told := self.complaint(golden, found):
            raise AssertionError(f"{what} {told}")

    def _near(self, golden: torch.Tensor, found: torch.Tensor) -> bool:
        a, b = golden.double(), found.double()
        rtol, atol = (_of(limit, golden.dtype) for limit in (self.rtol, self.atol))
        if atol is None:
            finite = a[a.isfinite()]  # else what is infinite would let all pass
            atol = self.relative_atol * float(finite.abs().max()) if finite.numel() else 0.0
        return torch.allclose(a, b, rtol=rtol or 0.0, atol=atol, equal_nan=True)


def _of(limit: Tolerance, dtype: torch.dtype) -> float | None:
    return limit.get(dtype) if isinstance(limit, Mapping) else limit


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


def evaluated_onnx(
    model: onnx.ModelProto, inputs: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Return what the evaluator of ONNX gives for inputs in order."""
    from onnx.reference import ReferenceEvaluator  # takes a tenth of a second

    weights = {item.name for item in model.graph.initializer}
    names = [port.name for port in model.graph.input if port.name not in weights]
    given = {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)}
    outputs = ReferenceEvaluator(model).run(None, given)
    return tuple(torch.from_numpy(np.asarray(output)) for output in outputs)


_LARGEST = 25000
"""What drawn integers are below."""


@dataclass(frozen=True)
class Drawn:
    """How tensors to compare on are drawn: uniform from 0 to 1, or normal, centered on zero or not.

    What is not centered is |N(0.5, 0.1)| + 1e-5, and what is, N(0, 0.1).
    """

    uniform: bool
    centered: bool

    def of(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor; integers are from 0 on."""
        if dtype.is_floating_point:
            return self.numbers(shape).to(dtype)
        largest = 2 if dtype is torch.bool else min(_LARGEST, torch.iinfo(dtype).max)
        return torch.randint(largest, tuple(shape)).to(dtype)

    def numbers(self, shape: Sequence[int]) -> torch.Tensor:
        """Return a tensor of float32."""
        if self.uniform:
            return torch.rand(tuple(shape))
        noise = torch.randn(tuple(shape)) * 0.1
        return noise if self.centered else (noise + 0.5).abs() + 1e-5
