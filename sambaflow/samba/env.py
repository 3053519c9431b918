"""Switches of the process."""

from __future__ import annotations

import os

from sambaflow.logging import samba_logger
from sambaflow.submodules import on_demand

__all__ = [
    "disable_sgd_stoc",
    "enable_addbias_grad_accum_stoc",
    "enable_conv_grad_accum_stoc",
    "use_mock_samba_runtime",
]

__getattr__ = on_demand(__name__)  # says which name may be meant

_MOCK = "SAMBA_MOCK_RUNTIME"


def use_mock_samba_runtime() -> bool:
    """Return whether this process is to do without a PEF's contents.

    True if the environment variable SAMBA_MOCK_RUNTIME is 1: `get_pef_info` then gives the values
    that the application has for this case, and applications expect no accuracy. Sessions compute
    all the same: the device here is a model in software, so nothing has to be imitated.
    """
    return os.environ.get(_MOCK) == "1"


def enable_addbias_grad_accum_stoc() -> None:
    """Ask for stochastic rounding where gradients of biases are summed.

    The modelled device sums them in FP32 and rounds to nearest, so this says so once and does
    nothing else.
    """
    _not_modelled("gradients of biases are summed in FP32")


def enable_conv_grad_accum_stoc() -> None:
    """Ask for stochastic rounding where gradients of convolutions are summed.

    As `enable_addbias_grad_accum_stoc`: nothing changes, since sums are FP32.
    """
    _not_modelled("gradients of convolutions are summed in FP32")


def disable_sgd_stoc() -> None:
    """Turn stochastic rounding of SGD's updates off, which is how the modelled device works."""


def _not_modelled(instead: str) -> None:
    samba_logger.warning(
        f"Stochastic rounding is not modelled: {instead} and rounded to nearest.", log_limit=1
    )
