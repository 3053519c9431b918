"""What this host can do that not every host can, by the names that programs require it by."""

from __future__ import annotations

import numpy as np

from sambarun.arrays import Array
from sambarun.errors import RunError

from .opening import Tuning, create_session
from .provider import INT8, INT32, UINT8, probe

_BLOCKED_DOMAIN = "com.microsoft.nchwc"
_INTEGER_PRODUCTS = 10  # the opset that brought them
_IMAGE = (1, 4, 1, 1)
# Many rows and one have kernels of their own, and so have sums of few and of many terms.
_TERMS, _COLUMNS, _ROWS = 64, 16, (1, 6)


def host_features(tuning: Tuning) -> frozenset[str]:
    """Return the features of this host, as far as the provider's kernels have them.

    `processor`: it is the processor that computes, with caches that hold what was made last.
    `nchwc16` and `nchwc8`: onnxruntime's convolutions in blocks of so many channels. An operator
    that puts a small image into blocks tells: it rounds the channels up to a whole block.
    `u8s8`: exact products of unsigned and signed bytes. Processors without an instruction for them
    add pairs up in 16 bits, which saturate; the product of the largest bytes tells.
    """
    if not tuning.provider.is_processor:
        return frozenset()  # its kernels are not those that are asked about
    block = _blocks(tuning)
    found = {"processor", *({f"nchwc{block}"} if block else ())}
    return frozenset(found | ({"u8s8"} if _multiplies_bytes(tuning) else set()))


def _blocks(tuning: Tuning) -> int:
    """Return the channels of a block; 0 if there are no blocks."""
    model = probe("ReorderInput", _BLOCKED_DOMAIN, 1)
    blocked = _run(model, tuning, {"x": np.zeros(_IMAGE, np.float32)})
    return 0 if blocked is None else int(blocked.shape[1])


def _multiplies_bytes(tuning: Tuning) -> bool:
    """Tell whether products of the largest bytes are exact."""
    ports = [("a", UINT8), ("b", INT8)]
    model = probe("MatMulInteger", "", _INTEGER_PRODUCTS, ports, INT32)
    for rows in _ROWS:
        left = np.full((rows, _TERMS), 255, np.uint8)
        right = np.full((_TERMS, _COLUMNS), 127, np.int8)
        product = _run(model, tuning, {"a": left, "b": right})
        if product is None or not np.all(product == _TERMS * 255 * 127):
            return False
    return True


def _run(model: bytes, tuning: Tuning, feeds: dict[str, Array]) -> Array | None:
    """Return what a model of one operator gives; None for a build without this operator."""
    try:
        session = create_session(model, "", tuning)
    except RunError:
        return None
    result: Array = session.run(None, feeds)[0]
    return result
