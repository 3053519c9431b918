"""The rows of a report about memory: regions, what lies in them, and bytes of the file."""

from __future__ import annotations

from typing import TypedDict


class RegionRow(TypedDict):
    """The use of an address space; `ratio` is used / peak_live, `largest` are symbol ids.

    `bandwidth` is the bytes per second that estimates charge, None where nobody knows.
    """

    name: str
    capacity: int
    used: int
    persistent: int
    peak_live: int
    ratio: float
    bandwidth: float | None
    largest: list[int]


class SpillRow(TypedDict):
    """A symbol that lies in `region` because no nearer one has room.

    `moved` are the bytes that a run moves to and from it if each access is to all of it, `us` the
    modelled time that this takes, `hbm_us` that which it would take in HBM. `cost_us` is what the
    run takes longer for it than in the next nearer region (HBM for DDR, DDR for HOST), as its
    allocation says: less where rows are picked, or operators compute meanwhile; None where that is
    not known.
    """

    symbol: int
    region: str
    bytes: int
    moved: int
    us: float | None
    hbm_us: float | None
    cost_us: float | None


class DataRow(TypedDict):
    """Where the content of a symbol lies in the file."""

    segment: str
    offset: int
    bytes: int


class AllocationRow(TypedDict):
    """A piece of a region; symbols that name the same one share its memory.

    `spilled` lies there for want of room in HBM, `shared` is a region of inputs and outputs.
    `reason` is a member of `PlacementReason`; `cost_us` what a slower region costs, or would cost,
    where the region was chosen by cost, else None.
    """

    id: int
    region: str
    address: int
    bytes: int
    name: str
    spilled: bool
    shared: bool
    reason: str
    cost_us: float | None


class SymbolRow(TypedDict):
    """A symbol. `region`, `address`, `allocation` are None for what has no planned place.

    `duration` is how long it keeps its content; `parameter` and `pack` are symbols: what a gradient
    or optimizer state belongs to, and the flat vector that it lies in.
    `dtype` is a name like `float32`, or for what is no plain tensor onnxruntime's spelling, and
    `declared` the type that the model has it in, where kernels of the host give more bits; then
    `device_bytes`, which estimates count, are fewer than `bytes`, for which regions have room.
    `origins` are the model's tensors that a derived weight was computed from.
    """

    id: int
    name: str
    kind: str
    dtype: str
    shape: list[int | str | None] | None
    region: str | None
    address: int | None
    bytes: int
    allocation: int | None
    duration: str
    first_call: int
    last_call: int
    data: DataRow | None
    origins: list[str]
    parameter: int | None
    pack: int | None
    declared: str
    device_bytes: int


class MemoryRow(TypedDict):
    """What one kind of tensor takes: how many there are, their elements and bytes."""

    kind: str
    tensors: int
    elements: int
    bytes: int


class AbsentRow(TypedDict):
    """A parameter or buffer of which the file holds no content."""

    symbol: int
    bytes: int
    name: str


class SegmentRow(TypedDict):
    """A byte range of the file."""

    name: str
    bytes: int
