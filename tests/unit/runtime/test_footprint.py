"""What an executable says it holds: planned, allocated, mapped, and beside."""

from __future__ import annotations

import mmap

import numpy as np
import pytest
from training_programs import batches, linear_regression
from training_variants import accumulating, normed, packed

import sambarun
from pef import RegionKind
from sambarun.device.footprint import private_bytes, touched_bytes


@pytest.mark.parametrize("make", [linear_regression, packed, normed, accumulating])
def test_when_all_sections_have_run_the_plan_is_allocated_to_the_byte(make):
    with sambarun.load(make().program(), link=False) as executable:
        for batch in batches(2):
            executable.step(batch)
            executable.run(batch, section_types="FWD")
        for region in executable.memory().regions:
            assert region.allocated + region.mapped == region.planned
        assert executable.memory().allocated > 0


@pytest.mark.parametrize("make", [linear_regression, packed, normed, accumulating])
def test_linked_runs_allocate_no_more_than_is_planned(make):
    with sambarun.load(make().program()) as executable:
        for batch in batches(2):
            executable.step(batch)
        for region in executable.memory().regions:
            assert region.allocated + region.mapped <= region.planned


def test_memory_is_taken_when_it_is_first_needed():
    with sambarun.load(linear_regression().program()) as executable:
        before = executable.memory()
        executable.step(batches(1)[0])
        after = executable.memory()
    assert before.planned == after.planned
    assert 0 < before.allocated < after.allocated
    assert [region.region for region in after.regions if region.planned] == [RegionKind.HBM]


def test_only_pages_that_were_written_count_as_touched():
    # Not from malloc, which may hand out pages that were written before.
    buffer = np.frombuffer(mmap.mmap(-1, 1 << 24), np.uint8)
    assert touched_bytes([buffer]) < 1 << 20
    buffer[: 1 << 22] = 1
    assert 1 << 22 <= touched_bytes([buffer]) < 1 << 23
    assert touched_bytes([]) == 0


def test_private_bytes_grow_with_what_is_written():
    before = private_bytes()
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    buffer = np.frombuffer(mmap.mmap(-1, 1 << 26, flags=flags), np.uint8)
    buffer[:] = 1
    assert before is not None
    assert private_bytes() - before > buffer.nbytes // 2


def test_what_comes_beside_counts_what_the_plan_does_not_know(monkeypatch):
    taken = 1 << 20
    monkeypatch.setattr("sambarun.execution.workspace.private_bytes", lambda: taken)
    with sambarun.load(linear_regression().program()) as executable:
        executable.step(batches(1)[0])
        taken += 1 << 26
        few = executable.memory().beside
        taken += 1 << 24
        assert executable.memory().beside - few == 1 << 24
        assert 0 < few <= 1 << 26
