"""What verification compares, and how near results must be: the original's settings and rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from pef.arguments import ANY, instance, misfits
from pef.warned import warn
from pef.wording import did_you_mean
from sambahost.golden import KINDS, Compares, GoldenRule, Tolerance
from sambahost.watcher import Watched

from ._C import DataFormat
from ._C.backend_api import BackendDevice, BackendType
from .config import Chosen
from .errors import PyBudaError, require_kind
from .optimizers import Optimizer
from .schedulers import LearningRateScheduler


class TestKind(Enum):
    """Which passes are verified."""

    __test__ = False  # no test, whatever its name

    INFERENCE = 1
    TRAINING = 2
    TRAINING_RECOMPUTE = 3

    def is_training(self) -> bool:
        """Return whether gradients and steps are compared, too."""
        return self is not TestKind.INFERENCE

    def is_recompute(self) -> bool:
        """Return whether activations are computed again in training."""
        return self is TestKind.TRAINING_RECOMPUTE

    @staticmethod
    def get_training() -> list[TestKind]:
        """Return the kinds that train."""
        return [kind for kind in TestKind if kind.is_training()]

    @staticmethod
    def get_all() -> list[TestKind]:
        """Return all kinds."""
        return [*TestKind]


_SGD = {"type": "sgd", "params": {"learning_rate": 50.0}}
_STAGE = "verified after that stage of its compiler; verify_all does so after those of this one"


def _idle(default: object, says: str = _STAGE) -> Any:
    """Return a setting without an effect here, which says what is done to modules on hardware."""
    return field(default=default, metadata={"says": says})


@dataclass(kw_only=True)
class VerifyConfig:
    """What is compared with torch, and how near it must be.

    Results pass that are within `atol` and a share `rtol` (numbers, or numbers by type of torch) of
    torch's, by default within `relative_atol` of the largest magnitude, if
    `golden_compare_callback` agrees; or that have a correlation of at least `pcc`.

    `verify_module` makes devices of `devtype`, `arch`, `fp32_fallback`, `chip_ids`, `num_chips`,
    with breaks at `epoch_breaks` and `chip_breaks`, an `optimizer` (`{"type": "adam", "params":
    {...}}`, or None) and its `scheduler`, and runs as `sequential`, `epochs`, `steps`,
    `accumulation_steps`, `microbatch_count` and `checkpoint_interval` say. A loss that it makes is
    multiplied by `scale_loss`. Gradients are not compared where the two `enable_...` say so, nor
    those of parameters with one of `waive_gradient_errors` in their names. Without
    `enabled` nothing is compared.
    """

    enabled: bool = True
    test_kind: TestKind = TestKind.INFERENCE
    devtype: BackendType | None = BackendType.Golden
    arch: BackendDevice | None = None
    fp32_fallback: DataFormat | None = None
    chip_ids: Sequence[int] | None = None
    num_chips: int | None = None
    epoch_breaks: Sequence[Chosen] = ()
    chip_breaks: Sequence[Chosen] = ()
    pcc: float | None = 0.99
    rtol: Tolerance = None
    atol: Tolerance = None
    relative_atol: float = 0.1
    golden_compare_callback: Compares | None = None
    scale_loss: float = 50.0
    optimizer: Mapping[str, Any] | None = field(default_factory=_SGD.copy)
    scheduler: Callable[[Optimizer], LearningRateScheduler] | None = None
    epochs: int = 1
    steps: int = 1
    accumulation_steps: int = 1
    microbatch_count: int = 1
    checkpoint_interval: int = 1
    sequential: bool = True
    enable_input_gradient_checking: bool = True
    enable_parameter_gradient_checking: bool = True
    waive_gradient_errors: Sequence[str] = ()
    verify_all: bool = False
    devmode: object = _idle(None, "compiled and run in two programs, if at all")
    dump_tensors_path: str = _idle("", "told to write their tensors there")
    golden_ignore_df_precision: bool = _idle(True, "compared with torch's results in formats")
    graph_name: str = _idle("graph", "called that in reports")
    intermediates: bool = _idle(True, "compared where their operators meet, too")
    run_golden: bool = _idle(False, "run by its backend's model, too")
    run_net2pipe: bool = _idle(False, "lowered to pipes, too")
    skip_shutdown: bool = _idle(False, "left on their devices")
    tti_path: object = _idle(None, "written to an image, and run from it")
    verify_each_buda_pass: bool = _idle(False)
    verify_last: bool = _idle(True)
    verify_pipeline_result_vs_framework: bool = _idle(False)
    verify_post_autograd_passes: bool = _idle(False)
    verify_post_placer: bool = _idle(False)
    verify_pybuda_codegen_vs_framework: bool = _idle(False)
    verify_tvm_compile: bool = _idle(False)

    def __post_init__(self) -> None:
        """Raise `PyBudaError` that tells all that is wrong."""
        _require(**vars(self))

    def __setattr__(self, name: str, value: object) -> None:
        """Set what there is; warn of what has no effect. Raise `PyBudaError` for what is wrong."""
        if name not in _SETTINGS:
            raise PyBudaError(f"VerifyConfig has no '{name}'{did_you_mean(name, _SETTINGS)}")
        if name in vars(self):
            _require(**{name: value})
        object.__setattr__(self, name, value)
        if (says := _SETTINGS[name].metadata.get("says")) and value != _SETTINGS[name].default:
            warn(f"{name}: on hardware modules are {says}; it has no effect here")

    @classmethod
    def disabled(cls) -> VerifyConfig:
        """Return a configuration by which nothing is compared."""
        return cls(enabled=False)

    def passes(self) -> GoldenRule | None:
        """Return by which rule passes of the compiler are verified, None where they are not."""
        return self.rule() if self.verify_all else None

    def rule(self) -> GoldenRule:
        """Return how near results must be."""
        compares = self.golden_compare_callback
        return GoldenRule(self.pcc, self.relative_atol, self.rtol, self.atol, compares)

    def watched(self) -> Watched:
        """Return what is compared in training."""
        own = (self.enable_input_gradient_checking, self.enable_parameter_gradient_checking)
        return Watched(self.rule(), *own, tuple(self.waive_gradient_errors))


_SETTINGS = {each.name: each for each in fields(VerifyConfig)}
_KINDS = {
    **KINDS,
    "test_kind": instance(TestKind, "a TestKind"),
    "devtype": instance(BackendType, "a pybuda.BackendType").or_none(),
    "arch": instance(BackendDevice, "a pybuda.BackendDevice").or_none(),
}


def _require(**given: object) -> None:
    if odd := misfits(**{name: (value, _KINDS.get(name, ANY)) for name, value in given.items()}):
        raise PyBudaError("\n".join(odd))


def asked_for(given: object, name: str = "_verify_cfg") -> VerifyConfig | None:
    """Return what an argument asks for, None for nothing. Raises `PyBudaError` for others."""
    if given is not None:  # each call that runs something asks
        require_kind(**{name: (given, VerifyConfig)})
    return given if isinstance(given, VerifyConfig) and given.enabled else None
