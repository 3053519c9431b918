"""Tensors without content: facts without numbers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from sambac.errors import InternalError
from sambac.graph.constants import AbsentTensor, is_absent


def test_type_and_sizes_are_known() -> None:
    tensor = AbsentTensor(ir.DataType.BFLOAT16, (3, 4), "w")
    assert isinstance(tensor, ir.TensorProtocol)
    assert (tensor.dtype, tuple(tensor.shape), tensor.size, tensor.nbytes) == (
        ir.DataType.BFLOAT16,
        (3, 4),
        12,
        24,
    )
    assert is_absent(tensor)
    assert not is_absent(ir.tensor(np.zeros(3)))
    assert not is_absent(None)


def test_it_can_be_printed() -> None:
    assert "FLOAT,[3]" in repr(AbsentTensor(ir.DataType.FLOAT, (3,), "w"))


@pytest.mark.parametrize("ask", [np.asarray, ir.LazyTensor.numpy, ir.LazyTensor.tobytes])
def test_content_is_refused(ask: object) -> None:
    tensor = AbsentTensor(ir.DataType.FLOAT, (3,), "w")
    with pytest.raises(InternalError, match="content of 'w'"):
        ask(tensor)  # type: ignore[operator]
