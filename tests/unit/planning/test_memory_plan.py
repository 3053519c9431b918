"""Rules of `plan_memory`, one test each."""

import pytest

from pef.symbols import RegionKind
from sambac.errors import CompileError, InternalError
from sambac.planning.check_memory import check_memory
from sambac.planning.memory import ALIGNMENT, plan_memory
from sambac.planning.plans import Buffer, MemoryPlan

HBM, DDR, HOST = RegionKind.HBM, RegionKind.DDR, RegionKind.HOST
ROOMY = {HBM: 1 << 40, DDR: 1 << 40, HOST: 1 << 40}


def regions_of(plan: MemoryPlan) -> dict[str, RegionKind]:
    return {name: placement.region for name, placement in plan.placements.items()}


def used(plan: MemoryPlan, kind: RegionKind) -> int:
    return next(use.used for use in plan.regions if use.kind is kind)


def checked(buffers: list[Buffer], capacities: dict[RegionKind, int]) -> MemoryPlan:
    plan = plan_memory(buffers, capacities)
    assert check_memory(buffers, plan, capacities) == []
    return plan


def test_no_buffers_still_list_every_region() -> None:
    plan = checked([], ROOMY)
    assert plan.placements == {}
    assert [(use.kind, use.used) for use in plan.regions] == [(HBM, 0), (DDR, 0), (HOST, 0)]


def test_everything_goes_to_hbm_by_default() -> None:
    plan = checked(
        [Buffer("w", 8, 0, 1, persistent=True, weight=True), Buffer("x", 8, 0, 1)], ROOMY
    )
    assert regions_of(plan) == {"w": HBM, "x": HBM}


@pytest.mark.parametrize("capacities", [{DDR: 1024, HOST: 1024}, {HBM: 0, DDR: 1024, HOST: 1024}])
def test_without_hbm_everything_goes_to_ddr(capacities: dict[RegionKind, int]) -> None:
    assert regions_of(checked([Buffer("x", 8, 0, 1)], capacities)) == {"x": DDR}


def test_the_region_asked_for_wins() -> None:
    buffers = [Buffer("x", 8, 0, 1, region=HOST), Buffer("y", 8, 0, 1, region=DDR)]
    assert regions_of(checked(buffers, ROOMY)) == {"x": HOST, "y": DDR}


def test_a_region_the_device_lacks_is_refused() -> None:
    with pytest.raises(CompileError, match=r"HBM, which this architecture does not have .*DDR"):
        plan_memory([Buffer("x", 8, 0, 1, region=HBM)], {DDR: 1024, HOST: 1024})


def test_persistent_buffers_lie_at_the_bottom_in_order() -> None:
    buffers = [
        Buffer("t", 100, 0, 0),
        Buffer("a", 1, 0, 9, persistent=True),
        Buffer("b", 65, 3, 3, persistent=True),
    ]
    plan = checked(buffers, ROOMY)
    addresses = {name: placement.address for name, placement in plan.placements.items()}
    assert addresses == {"a": 0, "b": ALIGNMENT, "t": 3 * ALIGNMENT}
    assert plan.regions[0].persistent == 3 * ALIGNMENT


def test_buffers_that_do_not_meet_share_memory() -> None:
    plan = checked([Buffer("a", 640, 0, 1), Buffer("b", 640, 2, 3)], ROOMY)
    assert used(plan, HBM) == 640


def test_an_output_does_not_overlay_an_input_that_dies_in_the_same_call() -> None:
    plan = checked([Buffer("a", 640, 0, 1), Buffer("b", 640, 1, 2)], ROOMY)
    assert used(plan, HBM) == 1280


def test_numbers_of_a_region_count_aligned_sizes() -> None:
    plan = checked([Buffer("a", 1, 0, 1), Buffer("b", 1, 1, 2)], ROOMY)
    assert (plan.regions[0].used, plan.regions[0].peak_live) == (2 * ALIGNMENT, 2 * ALIGNMENT)
    assert plan.placements["a"].size == 1


def test_an_empty_buffer_has_an_address_and_takes_no_room() -> None:
    buffers = [
        Buffer("w", 64, 0, 1, persistent=True),
        Buffer("none", 0, 0, 1),
        Buffer("x", 64, 0, 1),
    ]
    plan = checked(buffers, {DDR: 128})
    assert plan.placements["none"].address % ALIGNMENT == 0
    assert used(plan, DDR) == 128


def test_only_empty_buffers_need_no_memory() -> None:
    assert used(checked([Buffer("none", 0, 0, 1)], {DDR: 0}), DDR) == 0


def test_least_traffic_spills_first() -> None:
    buffers = [Buffer("busy", 640, 0, 1, traffic=3), Buffer("idle", 640, 0, 1, traffic=2)]
    assert regions_of(checked(buffers, {HBM: 640, DDR: 6400})) == {"busy": HBM, "idle": DDR}


def test_weights_spill_last() -> None:
    buffers = [
        Buffer("w", 640, 0, 1, persistent=True, weight=True, traffic=1),
        Buffer("x", 640, 0, 1, traffic=99),
    ]
    assert regions_of(checked(buffers, {HBM: 640, DDR: 6400})) == {"w": HBM, "x": DDR}
    assert regions_of(checked(buffers, {HBM: 64, DDR: 6400})) == {"w": DDR, "x": DDR}


def test_what_is_not_alive_at_the_peak_does_not_spill() -> None:
    buffers = [
        Buffer("early", 640, 0, 0, traffic=1),
        Buffer("a", 640, 1, 1, traffic=2),
        Buffer("b", 640, 1, 1, traffic=3),
    ]
    plan = checked(buffers, {HBM: 640, DDR: 6400})
    assert regions_of(plan) == {"early": HBM, "a": DDR, "b": HBM}


def test_what_turns_out_to_fit_comes_back() -> None:
    buffers = [
        Buffer("small", 64, 0, 0, traffic=1),
        Buffer("large", 640, 0, 0, traffic=2),
        Buffer("kept", 640, 0, 0, traffic=3),
    ]
    plan = checked(buffers, {HBM: 704, DDR: 6400})
    assert regions_of(plan) == {"small": HBM, "large": DDR, "kept": HBM}


def test_what_the_user_placed_does_not_spill() -> None:
    buffers = [Buffer("x", 640, 0, 1, region=HBM, traffic=1), Buffer("y", 640, 0, 1, traffic=9)]
    assert regions_of(checked(buffers, {HBM: 640, DDR: 6400})) == {"x": HBM, "y": DDR}


def test_a_spill_is_marked_and_a_wish_is_not() -> None:
    buffers = [
        Buffer("placed", 640, 0, 1, region=DDR, traffic=9),
        Buffer("busy", 640, 0, 1, traffic=3),
        Buffer("idle", 640, 0, 1, traffic=2),
    ]
    plan = checked(buffers, {HBM: 640, DDR: 6400})
    marked = {name: place.spilled for name, place in plan.placements.items()}
    assert marked == {"placed": False, "busy": False, "idle": True}
    without_hbm = checked(buffers, {DDR: 6400})
    assert not any(place.spilled for place in without_hbm.placements.values())


def test_gaps_between_buffers_count_when_spilling() -> None:
    """At most 4 units live at once, but no plan is below 5: with room for 4 some have to leave.

    Of what lives at 3, the units from 1 and from 2 are in different halves of the 4. Between them
    is room for 2 units only in the middle, where there is none for two more at 4.
    """
    halves, units_from_1 = [(2, 0, 0), (2, 0, 1)], [(1, 1, 2), (1, 1, 3)]
    units_from_2, ends = [(1, 2, 2), (1, 2, 3)], [(2, 3, 4), (2, 4, 4)]
    units = [*halves, *units_from_1, *units_from_2, *ends]
    buffers = [
        Buffer(f"b{i}", size * 64, first, last, traffic=size)
        for i, (size, first, last) in enumerate(units)
    ]
    plan = checked(buffers, {HBM: 4 * 64, DDR: 1 << 20})
    assert 1 <= list(regions_of(plan).values()).count(DDR) <= 3
    assert checked(buffers, ROOMY).regions[0].used == 5 * 64


def test_a_model_that_does_not_fit_names_region_excess_and_largest() -> None:
    buffers = [Buffer(f"t{i}", 1024 * (i + 1), 0, 0) for i in range(7)]
    with pytest.raises(CompileError) as caught:
        plan_memory(buffers, {DDR: 10 * 1024})
    message = str(caught.value)
    assert "DDR holds 10.0 KiB but 28.0 KiB are needed, 18.0 KiB too many" in message
    assert "(largest: t6 7.00 KiB, t5 6.00 KiB, t4 5.00 KiB, t3 4.00 KiB, t2 3.00 KiB)" in message
    assert "smaller batch" in message


def test_every_region_that_is_too_small_is_reported() -> None:
    buffers = [
        Buffer("x", 640, 0, 0, region=HOST),
        Buffer("y", 640, 0, 0, region=HBM),
        Buffer("z", 640, 0, 0, region=DDR),
    ]
    with pytest.raises(CompileError, match=r"HBM holds .*; DDR holds .*; HOST holds .*") as caught:
        plan_memory(buffers, {HBM: 64, DDR: 64, HOST: 64})
    assert "576 B too many (largest: x 640 B)" in str(caught.value)


def test_hbm_alone_does_not_spill_anywhere() -> None:
    with pytest.raises(CompileError, match="HBM holds 64 B"):
        plan_memory([Buffer("x", 640, 0, 0)], {HBM: 64, HOST: 1 << 20})


@pytest.mark.parametrize(
    "buffers",
    [
        [Buffer("x", 8, 0, 0), Buffer("x", 8, 1, 1)],
        [Buffer("x", -8, 0, 0)],
        [Buffer("x", 8, 1, 0)],
    ],
)
def test_nonsense_is_an_internal_error(buffers: list[Buffer]) -> None:
    with pytest.raises(InternalError, match="memory plan"):
        plan_memory(buffers, ROOMY)


def test_a_chain_with_residuals_reaches_the_lower_bound() -> None:
    buffers = []
    for i in range(60):
        size = 64 * (16 >> (i // 20))
        buffers.append(Buffer(f"t{i}", size, i, i + (3 if i % 3 == 0 else 1)))
    use = checked(buffers, ROOMY).regions[0]
    assert use.used == use.peak_live


def test_concatenated_features_reach_the_lower_bound() -> None:
    """Dense blocks: every layer's features are copied into a larger and larger tensor."""
    buffers = []
    for i in range(40):
        buffers.append(Buffer(f"features{i}", 64 * 4, 3 * i, 3 * i + 2))
        buffers.append(Buffer(f"all{i}", 64 * 4 * (i + 2), 3 * i + 2, 3 * i + 5))
        buffers.append(Buffer(f"wide{i}", 64 * 16, 3 * i + 1, 3 * i + 3))
    use = checked(buffers, ROOMY).regions[0]
    assert use.used <= 1.01 * use.peak_live
