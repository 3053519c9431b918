"""The shape of a report: what each of its rows holds. `sambac inspect --json` prints just this."""

from __future__ import annotations

from typing import TypedDict

from .memory_rows import (
    AbsentRow,
    AllocationRow,
    DataRow,
    MemoryRow,
    RegionRow,
    SegmentRow,
    SpillRow,
    SymbolRow,
)


class File(TypedDict):
    """The file itself: its name without a folder, and its size."""

    name: str
    bytes: int


class Produced(TypedDict):
    """The tool that made the program and the libraries it used, by name."""

    tool: str
    version: str
    libraries: dict[str, str]


class SourceRow(TypedDict):
    """The model: its file name without a folder and its SHA-256 in hex (either may be empty)."""

    name: str
    sha256: str


class Needs(TypedDict):
    """What a runtime needs: opset versions by domain, and features."""

    opsets: dict[str, int]
    features: list[str]


class Totals(TypedDict):
    """Counts over the whole program; latency, flops and traffic are of one run of the schedule."""

    sections: int
    sections_by_type: dict[str, int]
    calls: int
    groups: int
    operators: int
    programs: int
    program_bytes: int
    symbols: int
    weights: int
    weight_bytes: int
    latency_us: float
    flops: int
    bytes_in: int
    bytes_out: int
    bytes_weights: int


class PortRow(TypedDict):
    """An input or output of the model. An optional input has a default in the file.

    `gradient` is the symbol of its gradient, None if it has none.
    """

    name: str
    dtype: str
    shape: list[int | str | None] | None
    bytes: int
    optional: bool
    symbol: int
    gradient: int | None


class GraphRow(TypedDict):
    """A signature over a range of the schedule; time, flops and traffic of one run are modelled.

    `model` is empty in a program of one model. `policy_us` is the time with all in HBM but what
    moves the fewest bytes, where regions were chosen by cost instead, else None.
    """

    name: str
    model: str
    role: str
    first_call: int
    calls: int
    latency_us: float
    policy_us: float | None
    flops: int
    bytes_in: int
    bytes_out: int
    bytes_weights: int
    inputs: list[PortRow]
    outputs: list[PortRow]


class OperatorRow(TypedDict):
    """One operator of a fusion group, `node` its position among those of the portable program.

    `flops` and `pcus` are modelled. `declared` are the types that the model has its results in, one
    for each, where kernels of the host give more bits; empty where they are as they are.
    """

    name: str
    op_type: str
    node: int
    flops: int
    pcus: int
    declared: list[str]


class GroupRow(TypedDict):
    """A fusion group of a section."""

    name: str
    operators: list[OperatorRow]


class UpdateRow(TypedDict):
    """An input that a section updates in place, and the output that it becomes: symbol ids."""

    old: int
    new: int


class TermsRow(TypedDict):
    """What the modelled time of a section is made of, in microseconds.

    Latency is launch + fill + held + max(compute, streams) + link.
    """

    launch: float
    fill: float
    held: float
    compute: float
    streams: float
    link: float


class SectionRow(TypedDict):
    """A section; `inputs`, `weights`, `outputs` are symbol ids, `in_place` what it updates.

    For each of its programs `zeros` and `nonzeros` are the argins that must, or must not, be zero.
    The rest is modelled; `terms` is None in a file without them.
    """

    id: int
    name: str
    type: str
    programs: list[int]
    zeros: list[list[str]]
    nonzeros: list[list[str]]
    operators: int
    pcus: int
    pmus: int
    sram: int
    bytes_in: int
    bytes_out: int
    bytes_weights: int
    flops: int
    latency_us: float
    limited_by: str
    terms: TermsRow | None
    groups: list[GroupRow]
    inputs: list[int]
    weights: list[int]
    outputs: list[int]
    in_place: list[UpdateRow]


class ProgramRow(TypedDict):
    """A program that sections run: its graph in the file, formal names, how it is called."""

    id: int
    graph: DataRow
    call_form: str
    requires: list[str]
    inputs: list[str]
    weights: list[str]
    outputs: list[str]


class ArginRow(TypedDict):
    """A scalar given at run time: which `option` it is, of which `group` of parameters, if any."""

    name: str
    symbol: int
    default: float
    group: str
    option: str


class HostKernelRow(TypedDict):
    """A step that the host makes before each call of a section; symbols are ids."""

    kind: str
    section: int
    inputs: list[int]
    outputs: list[int]
    parameters: dict[str, object]


class AliasRow(TypedDict):
    """Another name of a symbol, and the API that uses it, if the model itself does not."""

    name: str
    symbol: int
    api: str


class Training(TypedDict):
    """What a program trains.

    `steps` are the graphs of training steps; `losses` start their backward passes; `memory` has a
    row for each kind of tensor, activations being those that BCKWD reads of FWD.
    """

    steps: list[str]
    losses: list[str]
    memory: list[MemoryRow]


class DeviceRow(TypedDict):
    """A number of the device that estimates took, how well it is known, and who says so."""

    name: str
    value: float
    unit: str
    origin: str
    source: str


class MoreRow(TypedDict):
    """A field of the format that nothing else in the report shows.

    `of` is the way to the row that has it, such as `sections[3].estimate`, empty for the program.
    """

    of: str
    field: str
    value: object


class LayerRow(TypedDict):
    """In which numbers a layer computes that can be quantised, and how far off that is.

    `share` is that of the model's arithmetic, `time` that of the modelled time of its operators,
    None in files that do not tell. Errors are relative: of the layer's `weights`, of its result
    `alone`, and `in_sequence`, behind other layers; None where nothing was measured.
    """

    layer: str
    operator: str
    precision: str
    scale: str
    weights: float
    share: float
    time: float | None
    alone: float | None
    in_sequence: float | None


class FormulationRow(TypedDict):
    """Which of several formulations `operator` has, for the operators `of` of the model.

    `by` says whether a guess of costs chose it, or a measurement.
    """

    operator: str
    sizes: str
    dtype: str
    formulation: str
    by: str
    of: list[str]


class OpTypeRow(TypedDict):
    """How often an operator occurs."""

    op_type: str
    count: int


class Report(TypedDict):
    """Everything, in the order in which a person wants to read it.

    `absent` are the parameters and buffers of which the file holds no content.
    """

    file: File | None
    format: str
    producer: Produced
    source: SourceRow
    options: dict[str, object]
    arch: str
    device: list[DeviceRow]
    requires: Needs
    totals: Totals
    warnings: list[str]
    training: Training | None
    absent: list[AbsentRow]
    layers: list[LayerRow]
    formulations: list[FormulationRow]
    graphs: list[GraphRow]
    regions: list[RegionRow]
    spills: list[SpillRow]
    op_types: list[OpTypeRow]
    sections: list[SectionRow]
    schedule: list[int]
    argins: list[ArginRow]
    host_kernels: list[HostKernelRow]
    aliases: list[AliasRow]
    segments: list[SegmentRow]
    programs: list[ProgramRow]
    allocations: list[AllocationRow]
    symbols: list[SymbolRow]
    more: list[MoreRow]
