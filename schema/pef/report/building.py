"""What a PEF holds, as plain data: the one source of the log, `sambac inspect` and `--list`.

`report(program)` returns dictionaries, lists, strings and numbers only, ready for JSON. Ids are
positions: a section's in the list of sections, a symbol's in the list of symbols, a call's in the
schedule. Sizes are in bytes; latencies are modelled, in microseconds, rounded to nanoseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pef import dtypes
from pef.container import FORMAT_VERSION, DataRef
from pef.costs import DeviceNumber, Estimate
from pef.foreign import json_object, producer_options
from pef.program import Argin, HostKernel, NamedGraph, Port, Program, Section, SectionProgram
from pef.symbols import Allocation, PlacementReason, Region, RegionKind, Symbol

from .memory_rows import AllocationRow, DataRow, RegionRow, SegmentRow, SpillRow, SymbolRow
from .more import more
from .recorded import take_formulations, take_layers
from .rows import (
    AliasRow,
    ArginRow,
    DeviceRow,
    File,
    GraphRow,
    GroupRow,
    HostKernelRow,
    Needs,
    OperatorRow,
    OpTypeRow,
    PortRow,
    Produced,
    ProgramRow,
    Report,
    SectionRow,
    SourceRow,
    TermsRow,
    Totals,
    UpdateRow,
)
from .training import absent, training

_LARGEST = 5


def report(program: Program, file: File | None = None) -> Report:
    """Return what `program` holds; `file` is the file it was read from or written to."""
    sections = [
        _section(number, section, program.symbols)
        for number, section in enumerate(program.sections)
    ]
    symbols = [_symbol(number, symbol, program) for number, symbol in enumerate(program.symbols)]
    producer = program.producer
    options = producer_options(producer.options)
    layers, formulations = take_layers(options), take_formulations(options)
    return Report(
        file=file,
        format=".".join(map(str, FORMAT_VERSION)),
        producer=Produced(
            tool=producer.tool, version=producer.version, libraries=dict(producer.libraries)
        ),
        source=SourceRow(name=producer.source, sha256=producer.source_hash),
        options=options,
        arch=program.arch,
        device=[_device(each) for each in program.device],
        requires=Needs(
            opsets=dict(program.requires.opsets), features=list(program.requires.features)
        ),
        totals=_totals(program, sections, symbols),
        warnings=[" ".join(warning.split()) for warning in program.warnings],
        training=training(program),
        absent=absent(program),
        layers=layers,
        formulations=formulations,
        graphs=[_graph(graph, program, sections) for graph in program.graphs],
        regions=[_region(region, symbols) for region in program.regions],
        spills=spills(program),
        op_types=_op_types(sections),
        sections=sections,
        schedule=list(program.schedule),
        argins=[_argin(argin) for argin in program.argins],
        host_kernels=[_host_kernel(kernel) for kernel in program.host_kernels],
        aliases=[
            AliasRow(name=alias.name, symbol=alias.symbol, api=alias.api)
            for alias in program.aliases
        ],
        segments=[SegmentRow(name=part.name, bytes=part.size) for part in program.segments],
        programs=[_program(number, each, program) for number, each in enumerate(program.programs)],
        allocations=[_allocation(number, each) for number, each in enumerate(program.allocations)],
        symbols=symbols,
        more=more(program),
    )


def _port_rows(ports: Iterable[Port], program: Program) -> list[PortRow]:
    """Return inputs or outputs of a graph with what their symbols say."""
    rows = []
    for port in ports:
        symbol = program.symbols[port.symbol]
        rows.append(
            PortRow(
                name=port.name,
                dtype=_dtype(symbol),
                shape=_shape(symbol),
                bytes=symbol.size,
                optional=symbol.data is not None,
                symbol=port.symbol,
                gradient=port.gradient,
            )
        )
    return rows


def _graph(graph: NamedGraph, program: Program, sections: list[SectionRow]) -> GraphRow:
    calls = program.schedule[graph.first_call : graph.first_call + graph.calls]
    called = [sections[number] for number in calls]
    return GraphRow(
        name=graph.name,
        model=graph.model,
        role=graph.role.name,
        first_call=graph.first_call,
        calls=graph.calls,
        latency_us=round(sum(section["latency_us"] for section in called), 3),
        policy_us=_microseconds(graph.policy_latency) if graph.policy_latency else None,
        flops=sum(section["flops"] for section in called),
        bytes_in=sum(section["bytes_in"] for section in called),
        bytes_out=sum(section["bytes_out"] for section in called),
        bytes_weights=sum(section["bytes_weights"] for section in called),
        inputs=_port_rows(graph.inputs, program),
        outputs=_port_rows(graph.outputs, program),
    )


def _argin(argin: Argin) -> ArginRow:
    return ArginRow(
        name=argin.name,
        symbol=argin.symbol,
        default=argin.default,
        group=argin.group,
        option=argin.option,
    )


def _host_kernel(kernel: HostKernel) -> HostKernelRow:
    return HostKernelRow(
        kind=kernel.kind,
        section=kernel.section,
        inputs=list(kernel.inputs),
        outputs=list(kernel.outputs),
        parameters=json_object(kernel.parameters, "the parameters of a host kernel"),
    )


def _section(number: int, section: Section, symbols: tuple[Symbol, ...]) -> SectionRow:
    estimate = section.estimate
    groups = [
        GroupRow(
            name=group.name,
            operators=[
                OperatorRow(
                    name=op.name,
                    op_type=op.op_type,
                    node=op.node,
                    flops=op.flops,
                    pcus=op.pcus,
                    declared=[_type_name(dtype) for dtype in op.declared],
                )
                for op in group.operators
            ],
        )
        for group in section.groups
    ]
    return SectionRow(
        id=number,
        name=section.name,
        type=section.type.name,
        programs=[variant.program for variant in section.variants],
        zeros=[[symbols[index].name for index in each.zeros] for each in section.variants],
        nonzeros=[[symbols[index].name for index in each.nonzeros] for each in section.variants],
        operators=sum(len(group["operators"]) for group in groups),
        pcus=estimate.pcus,
        pmus=estimate.pmus,
        sram=estimate.sram,
        bytes_in=estimate.bytes_in,
        bytes_out=estimate.bytes_out,
        bytes_weights=estimate.bytes_weights,
        flops=estimate.flops,
        latency_us=_microseconds(estimate.latency),
        limited_by=estimate.limited_by,
        terms=_terms(estimate),
        groups=groups,
        inputs=list(section.inputs),
        weights=list(section.weights),
        outputs=list(section.outputs),
        in_place=[
            UpdateRow(old=section.inputs[source], new=section.outputs[target])
            for source, target in section.in_place
        ],
    )


def _device(number: DeviceNumber) -> DeviceRow:
    return DeviceRow(
        name=number.name,
        value=number.value,
        unit=number.unit,
        origin=number.origin,
        source=number.source,
    )


def _terms(estimate: Estimate) -> TermsRow | None:
    terms = TermsRow(
        launch=_microseconds(estimate.launch),
        fill=_microseconds(estimate.fill),
        held=_microseconds(estimate.held),
        compute=_microseconds(estimate.compute),
        streams=_microseconds(estimate.streams),
        link=_microseconds(estimate.link),
    )
    return terms if any(terms.values()) else None


def _symbol(number: int, symbol: Symbol, program: Program) -> SymbolRow:
    place = None if symbol.allocation is None else program.allocations[symbol.allocation]
    return SymbolRow(
        id=number,
        name=symbol.name,
        kind=symbol.kind.name,
        dtype=_dtype(symbol),
        shape=_shape(symbol),
        region=place.region.name if place else None,
        address=place.address + symbol.offset if place else None,
        bytes=symbol.size,
        allocation=symbol.allocation,
        duration=symbol.duration.name,
        first_call=symbol.first_call,
        last_call=symbol.last_call,
        data=None if symbol.data is None else _data(symbol.data, program),
        origins=list(symbol.origins),
        parameter=symbol.parameter,
        pack=symbol.pack,
        declared=_type_name(symbol.declared),
        device_bytes=_device_bytes(symbol),
    )


def _program(number: int, found: SectionProgram, program: Program) -> ProgramRow:
    return ProgramRow(
        id=number,
        graph=_data(found.graph, program),
        call_form=found.call_form.name,
        requires=list(found.requires),
        inputs=list(found.inputs),
        weights=list(found.weights),
        outputs=list(found.outputs),
    )


def _allocation(number: int, place: Allocation) -> AllocationRow:
    return AllocationRow(
        id=number,
        region=place.region.name,
        address=place.address,
        bytes=place.size,
        name=place.name,
        spilled=place.spilled,
        shared=place.shared,
        reason=place.reason.name,
        cost_us=_cost(place),
    )


def _cost(place: Allocation) -> float | None:
    known = place.cost or place.reason is PlacementReason.COST
    return _microseconds(place.cost) if known else None


def _data(ref: DataRef, program: Program) -> DataRow:
    name = program.segments[ref.segment].name
    return DataRow(segment=name, offset=ref.offset, bytes=ref.size)


def _region(region: Region, symbols: list[SymbolRow]) -> RegionRow:
    name = region.kind.name
    inside = [row for row in symbols if row["region"] == name]
    inside.sort(key=lambda row: (-row["bytes"], row["id"]))
    return RegionRow(
        name=name,
        capacity=region.capacity,
        used=region.used,
        persistent=region.persistent,
        peak_live=region.peak_live,
        ratio=round(region.used / region.peak_live, 4) if region.peak_live else 1.0,
        bandwidth=region.bandwidth or None,
        largest=[row["id"] for row in inside[:_LARGEST]],
    )


def _op_types(sections: list[SectionRow]) -> list[OpTypeRow]:
    counts = Counter(
        op["op_type"]
        for section in sections
        for group in section["groups"]
        for op in group["operators"]
    )
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [OpTypeRow(op_type=op_type, count=count) for op_type, count in ordered]


def _totals(program: Program, sections: list[SectionRow], symbols: list[SymbolRow]) -> Totals:
    called = [sections[number] for number in program.schedule]
    stored = [row["data"]["bytes"] for row in symbols if row["kind"] == "WEIGHT" and row["data"]]
    return Totals(
        sections=len(sections),
        sections_by_type=dict(Counter(section["type"] for section in sections)),
        calls=len(called),
        groups=sum(len(section["groups"]) for section in sections),
        operators=sum(section["operators"] for section in sections),
        programs=len(program.programs),
        program_bytes=sum(part.graph.size for part in program.programs),
        symbols=len(symbols),
        weights=len(stored),
        weight_bytes=sum(stored),
        latency_us=round(sum(section["latency_us"] for section in called), 3),
        flops=sum(section["flops"] for section in called),
        bytes_in=sum(section["bytes_in"] for section in called),
        bytes_out=sum(section["bytes_out"] for section in called),
        bytes_weights=sum(section["bytes_weights"] for section in called),
    )


def _type_name(dtype: int) -> str:
    """Return the name of an element type; of 0, which is none, nothing."""
    return dtypes.BY_NUMBER[dtype].name if dtype else ""


def _device_bytes(symbol: Symbol) -> int:
    """Return the bytes that estimates count for a symbol."""
    declared = dtypes.static_nbytes(symbol.declared, symbol.shape) if symbol.declared else None
    return symbol.size if declared is None else declared


def _dtype(symbol: Symbol) -> str:
    """Return `float32` for `tensor(float)`, and any other type as it is spelt."""
    number = dtypes.parse(symbol.type)
    return symbol.type if number is None else dtypes.BY_NUMBER[number].name


def _shape(symbol: Symbol) -> list[int | str | None] | None:
    return None if symbol.shape is None else list(symbol.shape)


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3) + 0.0  # without the sign of a zero


def spills(program: Program) -> list[SpillRow]:
    """Return a row for each spilled symbol, with the bytes that one run of the schedule moves.

    Times are the moved bytes over the bandwidth that estimates charge, None where it is not known.
    """
    spilled = [
        (number, symbol, program.allocations[symbol.allocation])
        for number, symbol in enumerate(program.symbols)
        if symbol.allocation is not None and program.allocations[symbol.allocation].found_no_room
    ]
    if not spilled:
        return []
    called = (program.sections[number] for number in program.schedule)
    accesses = Counter(
        symbol
        for section in called
        for symbol in (*section.inputs, *section.weights, *section.outputs)
    )
    speeds = {region.kind: region.bandwidth for region in program.regions}
    return [
        SpillRow(
            symbol=number,
            region=place.region.name,
            bytes=symbol.size,
            moved=(moved := _device_bytes(symbol) * accesses[number]),
            us=_time(moved, speeds[place.region]),
            hbm_us=_time(moved, speeds.get(RegionKind.HBM, 0.0)),
            cost_us=_cost(place),
        )
        for number, symbol, place in spilled
    ]


def _time(moved: int, speed: float) -> float | None:
    """Return microseconds, rounded to nanoseconds."""
    return round(1e6 * moved / speed, 3) if speed else None
