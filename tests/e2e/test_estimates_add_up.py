"""What a compiled program says of time and units is what the device of its options gives."""

from __future__ import annotations

import pytest

import sambac
from benchmarks.models import synthetic
from sambac import CompileOptions
from sambac.arch import load_device


@pytest.mark.parametrize("level", ["O0", "O1", "O3"])
@pytest.mark.parametrize(("arch", "tiles"), [("sn40l", None), ("sn30", 4), ("sn10", None)])
def test_each_section_says_how_its_time_comes_about(
    level: str, arch: str, tiles: int | None
) -> None:
    options = CompileOptions(level=level, arch=arch, num_tiles=tiles)
    program = sambac.compile(synthetic.heavy(layers=2, width=256), options)
    device = load_device(arch, tiles)
    numbers = {row.name: row for row in program.device}
    assert numbers["pcus"].value == device.pcus.value
    assert numbers["launch"].source == device.launch.source
    for kind, tier in device.tiers.items():
        name = f"{kind.name.lower()}_bandwidth"
        assert (name in numbers) == (tier.bandwidth is not None)
    for section in program.sections:
        told = section.estimate
        assert told.launch == device.launch.value
        spent = told.launch + told.fill + told.held + max(told.compute, told.streams) + told.link
        assert told.latency == pytest.approx(spent)
        operators = [op for group in section.groups for op in group.operators]
        assert sum(op.flops for op in operators) == told.flops > 0
        assert sum(op.pcus for op in operators) == told.pcus > 0
        slowest = max(op.flops / op.pcus for op in operators if op.pcus)
        assert told.compute == pytest.approx(slowest / device.flops_per_pcu)
