"""Inputs between runs: copied to the device when they are given, and its own from then on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from ctypes import memmove
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pef.dtypes import BY_NUMBER
from pef.program import Program
from pef.states import shared_regions
from pef.symbols import Symbol
from sambarun import Executable

from .arrays import dense, from_array, to_array, torch_type
from .errors import HostError

Values: TypeAlias = Callable[[Tensor, str], Tensor]
"""Returns the values of a tensor that has none of its own, which go to a name on the device."""

_BYTE = 8


def refused(tensor: Tensor, name: str) -> Tensor:
    """Raise `HostError`: tensors on the meta device have no values."""
    raise HostError(f"'{name}' is given a tensor without values, on the meta device")


class _Place(NamedTuple):
    """Memory of an input on the device."""

    memory: Tensor
    address: int
    size: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, memory: Tensor) -> _Place:
        """Return the place that has the size and type of `memory`."""
        return cls(memory, memory.data_ptr(), memory.nbytes, tuple(memory.shape), memory.dtype)

    def fits(self, tensor: Tensor) -> bool:
        """Tell whether the bytes of `tensor` are what the device expects here."""
        return (
            tensor.dtype is self.dtype
            and not tensor.is_nested  # which have no one shape
            and tensor.shape == self.shape
            and tensor.layout is torch.strided
            and tensor.is_contiguous()
            and not (tensor.is_neg() or tensor.is_conj())  # marks that the bytes do not show
            and tensor.is_cpu
        )


class HeldInputs:
    """What runs are given, by port. A copy of a tensor taken is the input until the next is taken.

    Inputs without memory of their own on the device, and tensors that the program does not expect
    so that a run will refuse them, are `arrays`: a run is given these.
    """

    def __init__(self, executable: Executable, ports: Collection[str], values: Values) -> None:
        """Take inputs for `executable`, which are called `ports`."""
        self._values = values
        self.arrays: dict[str, np.ndarray] = {}
        self._executable = executable
        self._fixed = {symbol.name: symbol for symbol in _fixed_inputs(executable.program, ports)}
        self._places: dict[str, _Place] = {}

    def take(self, tensors: Mapping[str, Tensor], ports: Mapping[str, str]) -> None:
        """Take tensors for the next run and those that follow; `ports` has those of their names."""
        places = self._places
        with torch._C.DisableTorchFunctionSubclass():  # each attribute would go through it
            for name, tensor in tensors.items():
                port = ports[name]
                place = places.get(port)
                if place is None or not place.fits(tensor):
                    self._take(
                        port, self._values(tensor, name) if tensor.is_meta else tensor.detach()
                    )
                else:  # without torch's `copy_`, which takes three times as long
                    memmove(place.address, tensor.data_ptr(), place.size)

    def _take(self, port: str, tensor: Tensor) -> None:
        """Take a tensor that has no place yet, or does not fit there."""
        # As it was traced: 16-bit integers as 64.
        plain = dense(tensor)
        wide = plain.long() if plain.dtype is torch.int16 else plain
        symbol = self._fixed.get(port)
        if symbol is not None and _fits(wide, symbol):
            self.arrays.pop(port, None)
            memory = from_array(self._executable.input_buffer(port), symbol.dtype)
            memory.copy_(wide)
            self._places[port] = _Place.of(memory)
        else:
            self._places.pop(port, None)
            self.arrays[port] = to_array(wide).copy()

    def start_with_ones(self, port: str) -> None:
        """Forget what was taken as a gradient of an output: it is ones again."""
        self.arrays.pop(port, None)
        place = self._places.get(port)
        if place is not None:
            place.memory.fill_(1)

    def given(self) -> dict[str, np.ndarray]:
        """Return all inputs as arrays."""
        return {
            **{port: to_array(place.memory) for port, place in self._places.items()},
            **self.arrays,
        }

    def find(self, port: str, dtype: int) -> Tensor | None:
        """Return a copy of the input of type `dtype` of ONNX, None if there is none."""
        place = self._places.get(port)
        if place is not None:
            return place.memory.clone()
        array = self.arrays.get(port)
        return None if array is None else from_array(array.copy(), dtype)


def _fits(tensor: Tensor, symbol: Symbol) -> bool:
    expected = tensor.shape == symbol.shape and tensor.dtype is torch_type(symbol.dtype)
    return expected and not tensor.is_meta


def _fixed_inputs(program: Program, ports: Collection[str]) -> Iterator[Symbol]:
    """Yield the inputs among `ports` that are of fixed size, and share no memory."""
    shared = {index for tenants in shared_regions(program).values() for index in tenants}
    for index, symbol in enumerate(program.symbols):
        known, shape = BY_NUMBER.get(symbol.dtype), symbol.shape
        if symbol.name not in ports or index in shared or known is None or known.bits < _BYTE:
            continue
        if shape is not None and all(isinstance(size, int) for size in shape):
            yield symbol
