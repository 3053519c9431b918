"""Whether the plans in a PEF are right, found out from the file alone.

The checkers are those that run on every plan at compile time; no planner has a part in it. Sizes
inside sections are not stored, so that the memory units counted here are the least a section
needs; what its estimate says of units is held against the device as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from pef.graphs import AmbiguousNameError, callers, inner_symbols
from pef.program import Program
from pef.symbols import RegionKind
from pef.wording import larger_than_chip
from sambac.arch import Arch, builtin_archs, load_device
from sambac.planning.check_fusion import check_fusion
from sambac.planning.check_memory import check_memory, check_updates
from sambac.planning.check_sections import check_sections
from sambac.planning.liveness import memory_requests
from sambac.planning.placement import names_of, ports_in_host, regions_by_hand
from sambac.planning.plans import MemoryPlan, Placement
from sambac.planning.view import DataflowView, Lifetime, ValueRole

from .plans import StoredPlans, stored_plans

# What may be copied into its readers although it depends on more than constants: it asks for
# nothing but a shape, gives the same bytes another one, or is done while reading.
_COPIED = frozenset({
    "Cast", "Flatten", "Identity", "Reshape", "Shape", "Size", "Squeeze", "Transpose", "Unsqueeze",
})  # fmt: skip


def check_plans(program: Program) -> list[str]:
    """Return what is wrong with the fusion groups, sections and memory of `program`.

    `program` must be one in which `pef.check_program` finds nothing, with the bytes of its graphs
    in its segments. The limits of the device are checked where `device_of` knows it.
    """
    plans, problems = stored_plans(program)
    if problems:
        return problems
    arch = device_of(program)
    problems = check_fusion(plans.view, plans.fusion) or _check_sections(program, plans, arch)
    return problems + _check_memory(program, plans, arch)


def device_of(program: Program) -> Arch | None:
    """Return the device that `program` is for; None if a file of the user's described it."""
    name = _option(program, "arch")
    if name != program.arch or name not in builtin_archs():
        return None
    tiles, chips = _option(program, "num_tiles"), _option(program, "n_chips")
    return load_device(
        program.arch,
        tiles if isinstance(tiles, int) else None,
        chips if isinstance(chips, int) else 1,
    )


def _option(program: Program, name: str) -> object:
    options: dict[str, object] = json.loads(program.producer.options)
    return options.get(name)


def _check_sections(program: Program, plans: StoredPlans, arch: Arch | None) -> list[str]:
    problems = check_sections(plans.view, plans.fusion, plans.sections, plans.live_sets, arch)
    problems += _left_out(plans.view)
    return problems if problems or arch is None else list(_oversized(program, arch))


def _left_out(view: DataflowView) -> Iterator[str]:
    """Look for operators that compute something from activations and are in no group."""
    for op in view.ops.values():
        if not op.cloned or (op.domain == "" and op.op_type in _COPIED):
            continue
        for value in op.inputs:
            maker = view.producer.get(value)
            constant = view.values[value].role is ValueRole.WEIGHT
            if not constant and (maker is None or not view.ops[maker].cloned):
                yield f"{op.name} ({op.op_type}) is in no fusion group"
                break


def _oversized(program: Program, arch: Arch) -> Iterator[str]:
    """Look for sections whose own estimate is beyond the chip and that no warning names."""
    for section in program.sections:
        pcus, pmus = section.estimate.pcus, section.estimate.pmus
        over = pcus > arch.pcus.value or pmus > arch.pmus.value
        if over and not _is_told(section.name, program.warnings):
            yield f"section '{section.name}' needs {pcus} PCUs and {pmus} PMUs"


def _check_memory(program: Program, plans: StoredPlans, arch: Arch | None) -> list[str]:
    values, persistent = plans.view.values, plans.persistent
    calls = plans.calls
    problems = [
        problem
        for graph in plans.spans
        for problem in check_updates(plans.view, calls[graph.first_call : graph.end], persistent)
    ]
    lifetimes = plans.lifetimes
    try:
        in_region = wanted_regions(program, plans, lifetimes)
    except AmbiguousNameError as error:
        return [*problems, f"memory: {error}"]
    requests = memory_requests(values, lifetimes, len(calls), persistent, in_region=in_region)
    capacities = {region.kind: region.capacity for region in program.regions}
    plan = _memory_plan(program)
    problems += _wrong_lifetimes(program, lifetimes)
    return problems + check_memory(requests, plan, arch.capacities if arch else capacities)


def wanted_regions(
    program: Program, plans: StoredPlans, lifetimes: Mapping[str, Lifetime]
) -> dict[str, RegionKind]:
    """Return where the options in the file want symbols.

    Raises `AmbiguousNameError` for a name that means several things.
    """
    graphs = (
        (
            callers(graph.name, graph.model),
            [(p.name, program.symbols[p.symbol].name) for p in (*graph.inputs, *graph.outputs)],
        )
        for graph in program.graphs
    )
    states = ((a.name, program.symbols[a.symbol].name) for a in program.aliases if not a.api)
    inner = ((called, program.symbols[symbol].name) for called, symbol in inner_symbols(program))
    names = names_of(graphs, (*((name, name) for name in lifetimes), *states), inner)
    wanted: dict[str, RegionKind] = {}
    if _option(program, "io_host_memory") is True:
        wanted = ports_in_host(names, plans.view.values, plans.persistent)
    memory = _option(program, "memory")
    if isinstance(memory, dict):
        kinds = RegionKind.__members__
        stated = {name: region for name, region in memory.items() if region in kinds}
        wanted |= regions_by_hand(stated, names)
    return wanted


def _memory_plan(program: Program) -> MemoryPlan:
    """Return where symbols lie; those that share a named allocation are one buffer."""
    placements = {}
    for symbol in program.symbols:
        if symbol.allocation is not None:
            place = program.allocations[symbol.allocation]
            name, address, size = place.name, place.address, place.size
            if not name:
                name, address, size = symbol.name, address + symbol.offset, symbol.size
            placements[name] = Placement(
                place.region, address, size, place.spilled, place.reason, place.cost
            )
    return MemoryPlan(placements, program.regions)


def _wrong_lifetimes(program: Program, lifetimes: Mapping[str, Lifetime]) -> Iterator[str]:
    """Compare the lifetimes in the file with those that sections and schedule imply."""
    for symbol in program.symbols:
        life = lifetimes.get(symbol.name)
        if life is None:
            yield f"no section and no port uses '{symbol.name}'"
        elif (life.first, life.last) != (symbol.first_call, symbol.last_call):
            yield (
                f"'{symbol.name}' is said to live from call {symbol.first_call} to "
                f"{symbol.last_call}, but is used from {life.first} to {life.last}"
            )


def _is_told(section: str, warnings: Iterable[str]) -> bool:
    """Tell whether one of `warnings` says that the chip does not hold a section."""
    return any(warning.startswith(larger_than_chip(section)) for warning in warnings)
