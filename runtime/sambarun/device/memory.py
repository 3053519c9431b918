"""The device's memory: one arena per region, and the values that have no planned place."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
import onnxruntime
from onnxruntime.capi import _pybind_state as ort

import pef
from pef import dtypes
from pef.states import States, shared_regions
from sambarun.arrays import Array, Bytes, address_of, at_address, from_bytes, is_bindable
from sambarun.errors import RunError
from sambarun.sessions.provider import Provider

from .footprint import RegionUse
from .handing import handed_over
from .ledger import Ledger, Writes
from .weights import static_shape

_ALIGNMENT = 64  # that of the memory plan


class TensorAt(NamedTuple):
    """A tensor somewhere in memory; `owner` is the array that keeps it alive."""

    owner: Array
    address: int
    dtype: int
    shape: tuple[int, ...]

    def view(self) -> Array:
        """Return the elements; a view, except where they are packed."""
        return from_bytes(self.owner.reshape(-1).view(np.uint8), self.dtype, self.shape)


# A value without a planned place: an onnxruntime value, or a Python object (list, None, strings).
Value = object


class Memory:
    """Where the symbols of one executable are while it runs.

    A symbol is found in one of three places: among the caller's arrays (`feeds`), among values
    that onnxruntime allocated (`values`), or at its planned address. States never leave theirs.
    `kept` are inputs written once for all runs that are not given another value. `shared` are
    inputs and outputs that share planned memory with others: by symbol, all that do. `handed` are
    results that a run computes for its caller alone, who may change them then. `unfinished`
    makes good what an interrupted call has left; nothing else may be done before. `provider` says
    what onnxruntime has to know of the memory.
    """

    def __init__(self, program: pef.Program, states: States, provider: Provider) -> None:
        self.provider = provider
        self._program = program
        self._states = states.all
        self._buffers: dict[tuple[int, int, int], Bytes] = {}
        self._starts: list[tuple[int, int]] = []  # those of the buffers, and their sizes
        self._tensors: dict[int, TensorAt] = {}
        self._ledger = Ledger(program, states)
        self.shared = {
            symbol: tenants for tenants in shared_regions(program).values() for symbol in tenants
        }
        self.feeds: Mapping[int, TensorAt] = {}
        self.kept: dict[int, TensorAt] = {}
        self.values: dict[int, Value] = {}
        self.handed: dict[int, Array] = {}
        self.unfinished: Callable[[], None] | None = None

    def whole(self, work: Callable[[], None]) -> None:
        """Do `work`, which may be done twice; what was interrupted is done by `finish`."""
        self.unfinished = work
        work()
        self.unfinished = None

    def finish(self) -> None:
        """Do what was begun and interrupted; each work says itself what it leaves to do."""
        while self.unfinished is not None:
            work = self.unfinished
            work()
            if self.unfinished is work:
                self.unfinished = None

    @cached_property
    def for_caller(self) -> frozenset[int]:
        """The results that a run of a whole model hands over, where the caller wants its own."""
        return handed_over(self._program, self._states.union(self.shared))

    def hand(self, index: int) -> TensorAt:
        """Return new memory for result `index`, which is the caller's after the run."""
        symbol = self._program.symbols[index]
        shape = static_shape(symbol) or ()
        try:
            owner: Array = np.empty(shape, dtypes.numpy_dtype(symbol.dtype))
        except MemoryError as error:
            raise RunError(f"There is not enough memory for the result '{symbol.name}'.") from error
        self.handed[index] = owner
        return TensorAt(owner, address_of(owner), symbol.dtype, shape)

    def separate(self, given: dict[int, TensorAt]) -> None:
        """Copy those of `given`, the caller's tensors, that lie in memory a run writes to.

        Results that have stayed here may be given back.
        """
        for symbol, tensor in given.items():
            if self._is_inside(tensor):
                given[symbol] = copied = private(tensor)
                _copy(tensor, copied)

    def _is_inside(self, tensor: TensorAt) -> bool:
        """Tell whether a tensor shares memory with the plan; its buffers do so with none other."""
        if len(self._starts) != len(self._buffers):
            self._starts = sorted((address_of(b), b.nbytes) for b in self._buffers.values())
        last = bisect_left(self._starts, (tensor.address + tensor.owner.nbytes,)) - 1
        return last >= 0 and tensor.address < sum(self._starts[last])

    @property
    def buffers(self) -> Collection[Bytes]:
        """All memory behind planned addresses, as far as it has been needed."""
        return self._buffers.values()

    def regions(self) -> tuple[RegionUse, ...]:
        """Return how much of each region there is."""
        program = self._program
        constants = {index for section in program.sections for index in section.weights}
        homes = {program.symbols[index].allocation for index in constants}
        mapped = [program.allocations[home] for home in homes if home is not None]
        return tuple(
            RegionUse(
                region.kind,
                planned=region.used,
                allocated=sum(
                    buffer.nbytes // _ALIGNMENT * _ALIGNMENT
                    for (kind, *_), buffer in self._buffers.items()
                    if kind == region.kind
                ),
                mapped=sum(_aligned(home.size) for home in mapped if home.region == region.kind),
            )
            for region in program.regions
        )

    def tensor(self, index: int) -> TensorAt:
        """Return the planned place of symbol `index`. Raises `RunError` if it has none."""
        found = self._tensors.get(index)
        if found is None:
            found = self._tensors[index] = self._place(self._program.symbols[index])
        return found

    def find(self, index: int) -> TensorAt | Value:
        """Return where symbol `index` is now: fed, a value, or at its planned address."""
        if index in self.feeds:
            return self.feeds[index]
        if index in self.values:
            return self.values[index]
        return self.tensor(index)

    def ort_value(self, index: int) -> ort.OrtValue:
        """Return the tensor or value of symbol `index` as an onnxruntime value, without a copy."""
        found = self.find(index)
        if isinstance(found, TensorAt):
            return self._ort_value(found)
        if isinstance(found, np.ndarray):
            symbol = self._program.symbols[index]
            found = np.ascontiguousarray(found)
            return self._ort_value(TensorAt(found, address_of(found), symbol.dtype, found.shape))
        return found

    def host_value(self, index: int) -> object:
        """Return symbol `index` as something onnxruntime's plain `run` accepts."""
        found = self.find(index)
        if isinstance(found, TensorAt):
            found = self._ort_value(found)
        return onnxruntime.OrtValue(found) if isinstance(found, ort.OrtValue) else found

    def view(self, index: int) -> Array:
        """Return the content of symbol `index`, a tensor of whole bytes, without a copy."""
        found = self.find(index)
        if isinstance(found, ort.OrtValue):
            return _elements(found, self._program.symbols[index])
        if not isinstance(found, TensorAt):
            raise RunError(f"'{self._program.symbols[index].name}' is no tensor in memory.")
        return found.view()

    def copy(self, index: int) -> object:
        """Return what symbol `index` holds: a copy of a tensor, or the Python object itself."""
        found = self.find(index)
        if isinstance(found, ort.OrtValue):
            symbol = self._program.symbols[index]
            tensor = _elements(found, symbol) if is_bindable(symbol.type) else found.numpy()
            return np.array(tensor)
        return np.array(found.view()) if isinstance(found, TensorAt) else found

    def place(self, index: int) -> Array:
        """Return the memory at the planned address of symbol `index`, whatever it holds now."""
        return self.tensor(index).view()

    def take(self, index: int, given: TensorAt) -> None:
        """Copy a part of a pack, given by the caller, to its planned address."""
        self._overwrite(index, given)

    def keep(self, index: int, given: TensorAt) -> None:
        """Copy an input to memory of its own, for runs to come.

        Its planned memory would not do: others use it once the input has been read.
        """
        place = self.kept.get(index)
        if place is None or place.shape != given.shape:
            place = self.kept[index] = private(given)
        _copy(given, place)
        self.feeds = {**self.feeds, index: place}

    def kept_place(self, index: int) -> Array:
        """Return the memory that an input of fixed size keeps for runs to come."""
        place = self.kept.get(index)
        if place is None:
            symbol = self._program.symbols[index]
            place = self.kept[index] = _beside_plan(symbol.dtype, static_shape(symbol) or ())
        self.feeds = {**self.feeds, index: place}
        return place.view()

    def write(self, index: int, given: TensorAt) -> None:
        """Copy a value that is no input to its planned address."""
        self.feeds = {symbol: fed for symbol, fed in self.feeds.items() if symbol != index}
        if index in self._states:
            _copy(given, self.tensor(index))
        else:
            self._overwrite(index, given)

    def settle(self, index: int) -> None:
        """Move what a run has computed for a shared symbol to where the others find it."""
        found, place = self.ort_value(index), self.tensor(index)
        raw = at_address(found.data_ptr(), found.tensor_size_in_bytes())
        self._overwrite(index, TensorAt(raw, found.data_ptr(), place.dtype, place.shape))

    def has_place(self, index: int) -> bool:
        """Tell whether symbol `index` has planned memory."""
        symbol = self._program.symbols[index]
        return symbol.allocation is not None and static_shape(symbol) is not None

    def holds(self, index: int) -> bool:
        """Tell whether symbol `index` has been computed and not been overwritten since."""
        if index in self.feeds or index in self.values or index in self._states:
            return True
        return any(map(self._ledger.holds, self.shared.get(index, (index,))))

    def hold(self, indices: frozenset[int]) -> bool:
        """Tell whether all these symbols have been computed and not been overwritten since."""
        return self._ledger.hold(indices) or all(map(self.holds, indices))

    def record(self, writes: Writes) -> None:
        """Note that a plan has written what `writes` says."""
        if self.values:
            for index in (*writes.placed, *writes.hidden):
                self.values.pop(index, None)
        self._ledger.note(writes)

    def forget(self, writes: Writes, valued: tuple[int, ...]) -> None:
        """Note that the content of what a plan writes is undefined, because it broke off."""
        for index in valued:
            self.values.pop(index, None)
        self.record(writes)
        self._ledger.forget((*writes.placed, *valued))

    def _ort_value(self, tensor: TensorAt) -> ort.OrtValue:
        """Return an onnxruntime value over the memory of `tensor`."""
        storage = np.dtype(dtypes.BY_NUMBER[tensor.dtype].storage)
        raw = tensor.owner.reshape(-1).view(np.uint8).view(storage).reshape(tensor.shape)
        return self.provider.tensor(raw, tensor.dtype)

    def _overwrite(self, index: int, given: TensorAt) -> None:
        """Copy a value to a planned address; what lay there is given up before it is gone."""
        writes = Writes((index,), ())
        self._ledger.note(writes)
        self._ledger.forget((index,))
        _copy(given, self.tensor(index))
        self.record(writes)

    def _place(self, symbol: pef.Symbol) -> TensorAt:
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
        return TensorAt(owner, address_of(buffer) + start, symbol.dtype, shape)

    def _buffer(self, region: pef.RegionKind, first: int, end: int) -> Bytes:
        """Return the memory behind addresses `first` to `end`; untouched pages cost nothing.

        What is empty may begin where something else does, and has memory of its own.
        """
        key = (int(region), first, end)
        found = self._buffers.get(key)
        if found is None:
            found = self._buffers[key] = _allocate(_aligned(end - first), region.name)
        return found


def overlap(one: TensorAt, other: TensorAt) -> bool:
    """Tell whether two tensors share memory."""
    return bool(
        one.address < other.address + other.owner.nbytes
        and other.address < one.address + one.owner.nbytes
    )


def private(like: TensorAt) -> TensorAt:
    """Return new memory for a tensor of the same type and shape."""
    return _beside_plan(like.dtype, like.shape)


def _beside_plan(dtype: int, shape: tuple[int, ...]) -> TensorAt:
    size = dtypes.nbytes(dtype, shape)
    owner = _allocate(size, "memory beside the plan")[:size]
    return TensorAt(owner, address_of(owner), dtype, shape)


def _copy(source: TensorAt, target: TensorAt) -> None:
    """Copy the bytes of a tensor to another of its type and shape."""
    target.owner.reshape(-1).view(np.uint8)[:] = source.owner.reshape(-1).view(np.uint8)


def _elements(value: ort.OrtValue, symbol: pef.Symbol) -> Array:
    """Return the elements of a tensor that onnxruntime allocated for `symbol`, without a copy."""
    raw = at_address(value.data_ptr(), value.tensor_size_in_bytes())
    return from_bytes(raw, symbol.dtype, value.shape())


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _allocate(size: int, name: str) -> Bytes:
    """Return `size` zeros on a 64-byte boundary, at least one so that the address is never null.

    The system has one page of zeros for all that nobody has written to yet.
    """
    try:
        raw = np.zeros(max(size, 1) + _ALIGNMENT, np.uint8)
    except (MemoryError, ValueError) as error:
        raise RunError(
            f"The program needs {size} bytes of {name}; there is not enough memory."
        ) from error
    start = -address_of(raw) % _ALIGNMENT
    return raw[start : start + max(size, 1)]
