"""Numbers of Python in programs of float64, which the exporter rounds to float32 first.

    Cast(0.1, to=DOUBLE)   ->  0.1, which no float32 is

It makes a constant of a number in the type of the operands beside it. A cast has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx_ir as ir
from torch.onnx._internal.exporter._building import OpRecorder

from .guards import replaced

_DOUBLE = ir.DataType.DOUBLE


@contextmanager
def numbers_in_float64() -> Iterator[None]:
    """Let exports cast numbers to float64 without another type in between."""
    before = OpRecorder._call_op

    def call(
        recorder: OpRecorder, signature: Any, inputs: dict[str, Any], attributes: Any, count: int
    ) -> Sequence[ir.Value]:
        if isinstance(inputs.get("input"), float) and _is_cast(signature, inputs, attributes):
            inputs = {**inputs, "input": ir.tensor(np.asarray(inputs["input"], np.float64))}
        made: Sequence[ir.Value] = before(recorder, signature, inputs, attributes, count)
        return made

    with replaced(OpRecorder, "_call_op", call):
        yield


def _is_cast(signature: Any, inputs: dict[str, Any], attributes: dict[str, Any]) -> bool:
    """Tell whether an operator casts to float64."""
    if signature.name == "Cast":
        return bool(attributes.get("to") == _DOUBLE)
    return signature.name == "CastLike" and getattr(inputs["target_type"], "dtype", None) == _DOUBLE
