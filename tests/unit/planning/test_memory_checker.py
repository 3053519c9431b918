"""`check_memory` accepts a plan made by hand and names every planted fault."""

from dataclasses import replace

import pytest

from pef.symbols import Region, RegionKind
from sambac.planning.check_memory import check_memory
from sambac.planning.plans import Buffer, MemoryPlan, Placement

HBM, DDR, HOST = RegionKind.HBM, RegionKind.DDR, RegionKind.HOST
CAPACITIES = {HBM: 512, DDR: 512, HOST: 512}
BUFFERS = [
    Buffer("w", 100, 0, 3, persistent=True, weight=True),
    Buffer("a", 64, 0, 1),
    Buffer("b", 64, 1, 2),
    Buffer("c", 128, 2, 3),
    Buffer("d", 0, 2, 3),
    Buffer("x", 64, 0, 3, region=HOST),
]
PLAN = MemoryPlan(
    {
        "w": Placement(HBM, 0, 100),
        "a": Placement(HBM, 128, 64),
        "b": Placement(HBM, 256, 64),
        "c": Placement(HBM, 128, 128),
        "d": Placement(HBM, 128, 0),
        "x": Placement(HOST, 0, 64),
    },
    (
        Region(HBM, 512, used=320, persistent=128, peak_live=320),
        Region(DDR, 512, used=0, persistent=0, peak_live=0),
        Region(HOST, 512, used=64, persistent=0, peak_live=64),
    ),
)


def moved(name: str, **changes: object) -> MemoryPlan:
    placement = replace(PLAN.placements[name], **changes)  # type: ignore[arg-type]
    return replace(PLAN, placements={**PLAN.placements, name: placement})


def restated(index: int, **changes: object) -> MemoryPlan:
    regions = list(PLAN.regions)
    regions[index] = replace(regions[index], **changes)  # type: ignore[arg-type]
    return replace(PLAN, regions=tuple(regions))


def test_a_sound_plan_passes() -> None:
    assert check_memory(BUFFERS, PLAN, CAPACITIES) == []


@pytest.mark.parametrize(
    ("plan", "fault"),
    [
        (moved("b", address=128), "b and a overlap while both live"),
        (moved("c", address=256), "c and b overlap while both live"),
        (moved("c", address=64), "overlap while both live"),
        (moved("a", address=0), "a buffer that comes and goes lies below 128"),
        (moved("b", address=257), "b lies at 257, no multiple of 64"),
        (moved("b", address=-64), "b ends outside HBM"),
        (moved("b", address=512), "b ends outside HBM, at 576"),
        (moved("b", size=65), "b has 64 bytes but is placed with 65"),
        (moved("x", region=DDR), "x lies in DDR, but HOST was asked for"),
        (moved("a", region=HOST, address=64), "a lies in HOST, which nobody asked for"),
        (moved("a", spilled=True), "a is said to have spilled from HBM, but did not"),
        (moved("x", spilled=True), "x is said to have spilled from HBM, but did not"),
        (restated(0, capacity=1), "HBM: capacity is said to be 1, but is 512"),
        (restated(0, used=384), "HBM: used is said to be 384, but is 320"),
        (restated(0, persistent=100), "HBM: persistent is said to be 100, but is 128"),
        (restated(0, peak_live=256), "HBM: peak_live is said to be 256, but is 320"),
        (replace(PLAN, regions=PLAN.regions[:2]), "the plan lists the regions"),
        (
            replace(PLAN, placements={k: v for k, v in PLAN.placements.items() if k != "c"}),
            "buffer c is not placed",
        ),
        (
            replace(PLAN, placements={**PLAN.placements, "ghost": Placement(DDR, 0, 0)}),
            "ghost is placed but unknown",
        ),
    ],
)
def test_a_planted_fault_is_named(plan: MemoryPlan, fault: str) -> None:
    faults = check_memory(BUFFERS, plan, CAPACITIES)
    assert any(fault in line for line in faults), faults


def test_a_region_the_device_lacks_is_named() -> None:
    faults = check_memory(BUFFERS, PLAN, {HBM: 512, DDR: 512})
    assert "x lies in HOST, which the device does not have" in faults
    assert any(line.startswith("the plan lists the regions") for line in faults)
