"""Writing to views of memory with strides of one's own."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from .operators import constant, reshaped, sizes
from .scatter import index_put


def as_strided_scatter(
    x: ir.Value, src: ir.Value, size: Sequence[int], stride: Sequence[int], storage_offset: int = 0
) -> ir.Value:
    """Return `x` with the elements of `src`, of shape `size`, at places `stride` apart.

    The places are counted among the elements of `x` in their order, from `storage_offset` on.
    """
    if not all(isinstance(each, int) for each in (*size, *stride, storage_offset)):
        raise NotImplementedError("writes to as_strided of open sizes; fix them")
    places = np.asarray(storage_offset, np.int64)
    for count, step in zip(size, stride, strict=True):
        places = places[..., None] + np.arange(count, dtype=np.int64) * step
    shape = sizes(x)
    flat, written = reshaped(x, (math.prod(shape),)), reshaped(src, (math.prod(size),))
    return reshaped(index_put(flat, [constant(places.reshape(-1))], written), shape)
