"""Symbols, and the memory that they lie in: the half of a program that is no code.

A `Program` lists them; `pef.program` has the other half, what runs. Sizes and addresses are in
bytes. Element types are ONNX's numbers (`pef.dtypes` has their names and sizes).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from .container import DataRef
from .marks import AllocationIndex, CallPosition, SymbolIndex

# A dimension is a size, a name (symbolic, equal names are equal sizes) or None (unknown).
# A shape of None means that not even the rank is known.
Dim = int | str | None
Shape = tuple[Dim, ...] | None


class SymbolKind(IntEnum):
    """The role of a named tensor in device memory."""

    INPUT = 0
    OUTPUT = 1
    WEIGHT = 2
    BUFFER = 3
    GRADIENT = 4
    OPT_STATE = 5
    ACTIVATION = 6
    CONSTANT = 7
    ARGIN = 8


class Duration(IntEnum):
    """How long a symbol keeps its content: the storage duration.

    `TRANSIENT`: from the call that writes it, or the caller who gives it, to the last use of a run.
    `STATE`: from run to run; sections may update it.
    `CONSTANT`: for good; sections bind it as a weight.
    """

    TRANSIENT = 0
    STATE = 1
    CONSTANT = 2


class RegionKind(IntEnum):
    """One of the address spaces a symbol can live in."""

    HBM = 0
    DDR = 1
    HOST = 2


class PlacementReason(IntEnum):
    """Why an allocation lies in its region.

    `UNSTATED`: files before 0.7 do not say.
    `ROOM`: it is where symbols live by default, with room for all while it is alive.
    `USER`: the user wants it there.
    `COST`: there is no room for all, and of the placements looked at this one takes least time.
    `POLICY`: there is no room for all, and as the speed of a region is not known, what moves the
    fewest bytes leaves first, weights last.
    """

    UNSTATED = 0
    ROOM = 1
    USER = 2
    COST = 3
    POLICY = 4


FOR_WANT_OF_ROOM = frozenset({PlacementReason.COST, PlacementReason.POLICY})
"""Why something is in HOST that nobody wanted there."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """A piece of a region. Symbols that name the same allocation share its memory.

    `spilled` marks what would lie in HBM if there were room. A `shared` one is a region that inputs
    and outputs of graphs share: what one graph puts out to it is what another reads there, in a
    later run, unless the caller gives something else. `name` is what the user calls it, or that of
    a pack.

    `reason` says why it lies there. Where that is `COST`, `cost` is the modelled seconds that one
    run of the schedule takes longer with it in DDR than in HBM, all else staying where it is: what
    it costs to have spilled, or would cost. What did not even find room in DDR, or would leave DDR
    on a device without HBM, is compared in HOST and in DDR.
    """

    region: RegionKind
    address: int
    size: int
    name: str = ""
    spilled: bool = False
    shared: bool = False
    reason: PlacementReason = PlacementReason.UNSTATED
    cost: float = 0.0

    @property
    def found_no_room(self) -> bool:
        """Whether it lies there for want of room nearer by: in DDR instead of HBM, or in HOST."""
        return self.spilled or (self.region is RegionKind.HOST and self.reason in FOR_WANT_OF_ROOM)


@dataclass(frozen=True, slots=True)
class Region:
    """One address space of the device.

    `persistent` bytes from address 0 hold what lives through the whole program (weights); the
    rest of `used` is shared by what comes and goes. `peak_live` is the largest sum of bytes alive
    at once, the lower bound of any plan, so `used / peak_live` tells how good the plan is.
    `bandwidth` is the bytes per second that estimates charge for it, 0 if that is not known.
    """

    kind: RegionKind
    capacity: int
    used: int
    persistent: int
    peak_live: int
    bandwidth: float = 0.0


@dataclass(frozen=True, slots=True)
class Symbol:
    """A named tensor in device memory.

    A symbol without an allocation has a size known only at run time, or is no tensor at all; then
    `type` spells it as onnxruntime does (`seq(tensor(float))`, `tensor(string)`) and `dtype` is
    the element type, or 0. `data` is the content in the file: of a weight, or the default of an
    input that may be left out (`pef/defaults.py` has its form where shape and type do not give its
    size). `first_call` and `last_call` are the lifetime, inclusive, as
    positions in the schedule; -1 as first call means 'before the first call' (inputs, weights),
    and `last_call == len(schedule)` 'after the last one' (outputs, weights). `origins` names the
    model's tensors that a derived weight was computed from, sorted; it is empty for what the model
    itself names.

    `parameter` is the symbol that a gradient, or the state of an optimizer, belongs to; graphs that
    train one parameter have a gradient each. `pack` is the flat vector in whose memory the symbol
    lies: such a vector spans several parameters (or gradients, or states), so that one operator can
    update them all.

    `declared` is the element type that the model has it in, where kernels of the host give more
    bits, else 0: estimates count the bytes of that type, memory is planned for those of `dtype`.
    """

    name: str
    kind: SymbolKind
    dtype: int
    shape: Shape
    type: str
    allocation: AllocationIndex | None = None
    offset: int = 0
    size: int = 0
    first_call: CallPosition = -1
    last_call: CallPosition = -1
    data: DataRef | None = None
    origins: tuple[str, ...] = ()
    duration: Duration = Duration.TRANSIENT
    parameter: SymbolIndex | None = None
    pack: SymbolIndex | None = None
    declared: int = 0
