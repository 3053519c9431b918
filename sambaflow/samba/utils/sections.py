"""How long each section of a PEF takes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING

from torch import nn

from pef.text import human_time, table
from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.arguments.kinds import LIMIT
from sambaflow.samba.errors import SambaError
from sambaflow.samba.session import session
from sambahost.arrays import to_array

from .environment import is_main_process
from .reports import save_json
from .steps import MeasuredRun, flat, traced_outputs

if TYPE_CHECKING:
    from pef.program import Program
    from sambaflow.samba.run.device import SambaDevice
    from sambarun import Span

__all__ = ["SectionMeasurement", "device_of_session", "measure_sections", "section_table"]

_TYPES = {"FWD": "Forward", "BCKWD": "Backward", "OPT": "Optimizer"}
_NS_PER_S = 1e9


@dataclass(frozen=True)
class SectionMeasurement:
    """One section: what it took on the host, and what the compiler estimated for the device.

    A section that runs several times in a step has the sum. Sections that were not measured have
    None. Counts and utilization of compute units (PCU) and memory units (PMU) are estimates; the
    utilization, a share of the chip, is None for a device that the compiler has no description of.
    """

    section_id: int
    chip_id: int
    partition_id: str
    section_type: str
    measured_throughput: float | None
    measured_latency_sec: float | None
    estimated_latency_sec: float
    pmu_count: int
    pmu_utilization: float | None
    pcu_count: int
    pcu_utilization: float | None


@checked("utils.measure_sections", min_duration=LIMIT)
def measure_sections(
    model: nn.Module,
    inputs: object,
    num_sections: int | None = None,
    n_iterations: int = 100,
    batch_size: int = 1,
    json: str | os.PathLike[str] | None = None,
    data_parallel: bool = False,
    reduce_on_rdu: bool = False,
    min_duration: float = 0.0,
    inference: bool = False,
) -> tuple[SectionMeasurement, ...]:
    """Run a traced model section by section and return how long each took, the median of steps.

    `inputs` are SambaTensors as for tracing. The whole schedule is run, or its forward part with
    `inference`; training really trains, so parameters change. One step warms up, `n_iterations`
    are measured, and more until `min_duration` seconds are over. Sections from number
    `num_sections` on run too, but are not measured. The table is printed, and written to `json` if
    that names a file.

    Sections that run one by one are not linked, so that their sum is more than a step takes.
    Raises ValueError for no iterations, SambaError for a model that is not traced.
    """
    if n_iterations < 1:
        raise ValueError(f"n_iterations is {n_iterations}, expected 1 or more")
    device = device_of_session()
    MeasuredRun(traced_outputs(model), inference, data_parallel, reduce_on_rdu).run(
        tuple(flat(inputs))
    )
    steps = _profiled(device, inputs, inference, n_iterations, min_duration)
    measured = range(len(device.program.sections) if num_sections is None else num_sections)
    rows = _rows(device.program, steps, measured, batch_size)
    if is_main_process():
        print(*section_table(rows), sep="\n")
        if json is not None:
            save_json(json, {"sections": [asdict(row) for row in rows]})
    return rows


def device_of_session() -> SambaDevice:
    """Return the device that the session's PEF is on; raises SambaError if there is none."""
    if session.device is None:
        raise SambaError(
            "no PEF is on the device: call samba.utils.trace_graph with the model and its PEF first"
        )
    return session.device


def section_table(rows: Sequence[SectionMeasurement]) -> list[str]:
    """Return the lines of a table of `rows`."""

    def seconds(value: float | None) -> str:
        return "-" if value is None else human_time(value * 1e6)

    def number(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    headers = ("section", "type", "measured", "samples/s", "estimated", "PCUs", "PMUs")
    cells = [
        (
            str(row.section_id),
            row.section_type,
            seconds(row.measured_latency_sec),
            number(row.measured_throughput, ",.0f"),
            seconds(row.estimated_latency_sec),
            str(row.pcu_count),
            str(row.pmu_count),
        )
        for row in rows
    ]
    return table(headers, cells, right=("section", "measured", "samples/s", "estimated", "PCUs"))


def _profiled(
    device: SambaDevice, inputs: object, inference: bool, iterations: int, least: float
) -> list[Sequence[Span]]:
    """Return the spans of each step."""
    ports = device.host.inputs
    arrays = {
        ports[tensor.sn_name]: to_array(tensor)
        for tensor in flat(inputs)
        if tensor.sn_name in ports
    }
    types = ("FWD",) if inference else None

    def step() -> Sequence[Span]:
        found = device.executable.profile(arrays, section_types=types, train=not inference)
        return found.spans

    step()
    steps: list[Sequence[Span]] = []
    began = time.perf_counter()
    while len(steps) < iterations or time.perf_counter() - began < least:
        steps.append(step())
    return steps


def _rows(
    program: Program, steps: Iterable[Sequence[Span]], measured: Iterable[int], batch_size: int
) -> tuple[SectionMeasurement, ...]:
    taken: dict[int, list[float]] = {}
    for spans in steps:
        sums: dict[int, float] = {}
        for span in spans:
            sums[span.section] = sums.get(span.section, 0.0) + span.duration / _NS_PER_S
        for section, total in sums.items():
            taken.setdefault(section, []).append(total)
    wanted = set(measured)
    seconds = {number: median(times) for number, times in taken.items() if number in wanted}
    return tuple(
        _row(program, number, seconds, batch_size) for number in range(len(program.sections))
    )


def _row(
    program: Program, number: int, seconds: Mapping[int, float], batch_size: int
) -> SectionMeasurement:
    section = program.sections[number]
    estimate, took = section.estimate, seconds.get(number)
    pcus, pmus = _units(program.arch)
    return SectionMeasurement(
        section_id=number,
        chip_id=0,
        partition_id=f"({number}, 0)",
        section_type=_TYPES.get(section.type.name, section.type.name.capitalize()),
        measured_throughput=batch_size / took if took else None,
        measured_latency_sec=took,
        estimated_latency_sec=estimate.latency,
        pmu_count=estimate.pmus,
        pmu_utilization=estimate.pmus / pmus if pmus else None,
        pcu_count=estimate.pcus,
        pcu_utilization=estimate.pcus / pcus if pcus else None,
    )


def _units(arch: str) -> tuple[float, float]:
    """Return how many PCUs and PMUs the device has; 0 for one that was described by a file."""
    # Beside the compiler: only who asks for utilization needs it.
    from sambac.arch import builtin_archs, load_arch

    if arch not in builtin_archs():
        return 0.0, 0.0
    found = load_arch(arch)
    return found.pcus.value, found.pmus.value
