"""The device's memory: one arena per region, and the values that have no planned place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import onnxruntime
from onnxruntime.capi import _pybind_state as ort

import pef
from pef import dtypes

from .arrays import Array, Bytes, address_of
from .errors import RunError
from .weights import static_shape

_ALIGNMENT = 64


class Tensor(NamedTuple):
    """A tensor somewhere in memory; `owner` is the array that keeps it alive."""

    owner: Array
    address: int
    dtype: int
    shape: tuple[int, ...]


# A value without a planned place: an onnxruntime value, or a Python object (list, None, strings).
Value = object


class Memory:
    """Where the symbols of one executable are while it runs.

    A symbol is found in one of three places: among the caller's arrays (`feeds`), among values
    that onnxruntime allocated (`values`), or at its planned address.
    """

    def __init__(self, program: pef.Program) -> None:
        self._program = program
        self._buffers: dict[tuple[int, int], Bytes] = {}
        self._tensors: dict[int, Tensor] = {}
        self._written: dict[int, None] = {}
        self.feeds: Mapping[int, Tensor] = {}
        self.values: dict[int, Value] = {}

    def tensor(self, index: int) -> Tensor:
        """Return the planned place of symbol `index`. Raises `RunError` if it has none."""
        found = self._tensors.get(index)
        if found is None:
            found = self._tensors[index] = self._place(self._program.symbols[index])
        return found

    def find(self, index: int) -> Tensor | Value:
        """Return where symbol `index` is now: fed, a value, or at its planned address."""
        if index in self.feeds:
            return self.feeds[index]
        if index in self.values:
            return self.values[index]
        return self.tensor(index)

    def ort_value(self, index: int) -> ort.OrtValue:
        """Return the tensor or value of symbol `index` as an onnxruntime value, without a copy."""
        found = self.find(index)
        if isinstance(found, Tensor):
            return _ort_value(found)
        if isinstance(found, np.ndarray):
            symbol = self._program.symbols[index]
            found = np.ascontiguousarray(found)
            return _ort_value(Tensor(found, address_of(found), symbol.dtype, found.shape))
        return found

    def host_value(self, index: int) -> object:
        """Return symbol `index` as something onnxruntime's plain `run` accepts."""
        found = self.find(index)
        if isinstance(found, Tensor):
            found = _ort_value(found)
        return onnxruntime.OrtValue(found) if isinstance(found, ort.OrtValue) else found

    def holds(self, index: int) -> bool:
        """Tell whether symbol `index` has been computed and not been overwritten since."""
        if index in self.feeds or index in self.values:
            return True
        if index not in self._written:
            return False
        later = list(self._written)
        return not any(self._overlap(index, other) for other in later[later.index(index) + 1 :])

    def record(self, symbols: Iterable[int]) -> None:
        """Note that `symbols` have been written to their planned addresses, in this order."""
        for index in symbols:
            self.values.pop(index, None)
            self._written.pop(index, None)
            self._written[index] = None

    def forget(self, symbols: Iterable[int]) -> None:
        """Note that the content of `symbols` is undefined."""
        for index in symbols:
            self.values.pop(index, None)
            self._written.pop(index, None)

    def _overlap(self, one: int, other: int) -> bool:
        a, b = self.tensor(one), self.tensor(other)
        return overlap(a, b)

    def _place(self, symbol: pef.Symbol) -> Tensor:
        """Return the memory of `symbol`, whose place is checked: the plan comes from a file."""
        shape = static_shape(symbol)
        if symbol.allocation is None or shape is None:
            raise RunError(f"Symbol '{symbol.name}' has no planned place in memory.")
        allocation = self._program.allocations[symbol.allocation]
        size = dtypes.nbytes(symbol.dtype, shape)
        region = next((r for r in self._program.regions if r.kind == allocation.region), None)
        end = allocation.address + allocation.size
        if region is None or end > region.used or symbol.offset + size > allocation.size:
            raise RunError(f"Symbol '{symbol.name}' reaches beyond its place in memory.")
        if allocation.address >= region.persistent:
            buffer = self._buffer(region.kind, region.persistent, region.used)
            start = allocation.address - region.persistent + symbol.offset
        else:
            buffer = self._buffer(region.kind, allocation.address, end)
            start = symbol.offset
        owner = buffer[start : start + size]
        return Tensor(owner, address_of(buffer) + start, symbol.dtype, shape)

    def _buffer(self, region: pef.RegionKind, first: int, end: int) -> Bytes:
        """Return the memory behind addresses `first` to `end`; untouched pages cost nothing."""
        key = (int(region), first)
        found = self._buffers.get(key)
        if found is None:
            found = self._buffers[key] = _allocate(end - first, region.name)
        return found


def overlap(one: Tensor, other: Tensor) -> bool:
    """Tell whether two tensors share memory."""
    return bool(
        one.address < other.address + other.owner.nbytes
        and other.address < one.address + one.owner.nbytes
    )


def _ort_value(tensor: Tensor) -> ort.OrtValue:
    """Return an onnxruntime value over the memory of `tensor`."""
    storage = np.dtype(dtypes.BY_NUMBER[tensor.dtype].storage)
    raw = tensor.owner.reshape(-1).view(np.uint8).view(storage).reshape(tensor.shape)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(raw, tensor.dtype)


def _allocate(size: int, name: str) -> Bytes:
    """Return `size` bytes on a 64-byte boundary, at least one so that the address is never null."""
    try:
        raw = np.empty(max(size, 1) + _ALIGNMENT, np.uint8)
    except (MemoryError, ValueError) as error:
        raise RunError(f"The program needs {size} bytes of {name}; there is no memory.") from error
    start = -address_of(raw) % _ALIGNMENT
    return raw[start : start + max(size, 1)]
