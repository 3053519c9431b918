"""The estimate of a planned program: its sections, and what users should know of modelled times."""

from __future__ import annotations

from collections.abc import Iterator

from pef import dtypes
from pef.program import RegionKind
from pef.text import human_bytes, human_time, plural
from sambac.arch import Arch

from .estimate import estimate_sections
from .plans import CostReport
from .program_plan import ProgramPlan
from .symbols import moved_by_calls
from .view import ValueRole


def estimate(plan: ProgramPlan, arch: Arch) -> CostReport:
    """Estimate every section of `plan`, each byte at the speed of the region that it lies in.

    Warnings say which regions have no known speed (which counts as no time), how many sizes are
    known only at run time, and what a run pays for what has spilled.
    """
    sections = estimate_sections([stage for _, stage in plan.stages], arch, _homes(plan))
    warnings = (*_left_out(plan, arch), *_spilled(plan, arch))
    return CostReport(sections, warnings)


def _homes(plan: ProgramPlan) -> dict[str, RegionKind]:
    """Return the region of every value that crosses a border and whose size is known."""
    return {
        name: plan.memory.placements[buffer].region
        for name in plan.values
        if (buffer := plan.residents.buffer(name)) in plan.memory.placements
    }


def _left_out(plan: ProgramPlan, arch: Arch) -> Iterator[str]:
    used = {placement.region for placement in plan.memory.placements.values() if placement.size}
    for kind in sorted(used):
        if arch.speed(kind) is None:
            yield (
                f"{arch.name}: the bandwidth of {kind.name} is not published, so the modelled "
                "latencies leave out the time to move what lies there"
            )
    unknown = sum(1 for facts in plan.values.values() if facts.nbytes is None)
    if unknown:
        yield (
            f"the size of {plural(unknown, 'value')} is known only at run time; the modelled costs "
            f"take 1 for every open dimension{_remedy(plan)}"
        )


def _remedy(plan: ProgramPlan) -> str:
    """Return what fixes sizes, where it is inputs that leave them open."""
    for facts in plan.values.values():
        is_tensor = dtypes.parse(facts.type) is not None
        if facts.role is ValueRole.INPUT and facts.nbytes is None and facts.shape and is_tensor:
            sizes = "x".join(str(size) if isinstance(size, int) else "8" for size in facts.shape)
            option = f"--input {facts.name}={sizes}"
            return f"; fix them for costs of a real run, for instance with {option}"
    return ""


def _spilled(plan: ProgramPlan, arch: Arch) -> Iterator[str]:
    """Say what lies in DDR for want of room, and what it costs to move that in one run."""
    spilled = {name: place.size for name, place in plan.memory.placements.items() if place.spilled}
    if not spilled:
        return
    moved = sum(
        (plan.values[name].nbytes or 0) * moved_by_calls(plan.symbols, name)
        for name in plan.lifetimes
        if plan.residents.buffer(name) in spilled
    )
    ddr, hbm = arch.speed(RegionKind.DDR), arch.speed(RegionKind.HBM)
    cost = ""
    if ddr is not None and hbm is not None:
        cost = f", in {human_time(1e6 * moved / ddr)} instead of {human_time(1e6 * moved / hbm)}"
    yield (
        f"HBM is full: {plural(len(spilled), 'symbol')} of {human_bytes(sum(spilled.values()))} "
        f"spilled to DDR; a run moves {human_bytes(moved)} to and from there{cost}"
    )
