"""Processes that train together: gradients are reduced between BCKWD and what uses them."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from benchmarks.models import training as models
from training_run import feeds

import sambac
import sambarun
from pef import SectionType, SymbolKind
from pef.rules import check_program
from sambac.verify import check_plans


class Averaging:
    """Reducers of executables in threads of one process: each gives the mean over all of them."""

    def __init__(self, count):
        self._barrier = threading.Barrier(count)
        self._buffers = [{} for _ in range(count)]
        self.names = [[] for _ in range(count)]

    def of(self, rank):
        return _Reducer(self, rank)

    def meet(self, rank, name, buffer):
        self._buffers[rank][name] = buffer.copy()
        self._barrier.wait(60)
        mean = sum(found[name] for found in self._buffers) / len(self._buffers)
        self._barrier.wait(60)
        np.copyto(buffer, mean)


class _Reducer:
    def __init__(self, group, rank):
        self._group = group
        self._rank = rank

    def start(self, name, buffer):
        self._group.names[self._rank].append(name)
        return _Handle(lambda: self._group.meet(self._rank, name, buffer))


class _Handle:
    def __init__(self, wait):
        self.wait = wait


@cache
def compiled(batch, **options):
    torch.manual_seed(0)
    trainee = models.mlp(batch=batch)
    wish = sambac.CompileOptions(
        train=True, **{"optimizers": (sambac.AdamW(lr=1e-2),), "data_parallel": True, **options}
    )
    return sambac.compile(trainee.module, wish, inputs=trainee.batch(0))


def trained_in_halves(program, batches, reducers, link):
    """Return the states of two executables that train together, each on half of every batch."""
    found = [None, None]

    def work(rank):
        with sambarun.load(program, reducer=reducers.of(rank), threads=1, link=link) as mine:
            for batch in batches:
                half = len(batch[0]) // 2
                rows = tuple(item[rank * half :][:half] for item in batch)
                mine.step(feeds(program, rows))
            found[rank] = mine.state()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize(
    ("options", "link"),
    [
        ({}, True),
        ({"max_grad_norm": 0.1}, True),
        ({"max_grad_norm": 0.1, "accumulate": True}, False),
        ({"level": "O0"}, False),
    ],
    ids=["linked", "clipped", "accumulating", "O0"],
)
def test_two_half_batches_that_are_reduced_are_one_batch(options, link):
    batches = [models.mlp(batch=32).batch(seed) for seed in range(4)]
    reducers = Averaging(2)
    halves = trained_in_halves(compiled(16, **options), batches, reducers, link)
    whole = compiled(32, **options)
    with sambarun.load(whole) as executable:  # without a reducer nothing is reduced
        for batch in batches:
            executable.step(feeds(whole, batch))
        expected = executable.state()
    for name, array in expected.items():
        np.testing.assert_array_equal(halves[0][name], halves[1][name])
        np.testing.assert_allclose(halves[0][name], array, rtol=2e-4, atol=2e-6, err_msg=name)
    assert reducers.names[0] == reducers.names[1]


def test_a_program_lists_few_large_buffers_to_reduce():
    program = compiled(16)
    (reduce,) = (section for section in program.sections if section.type is SectionType.REDUCE)
    types = [program.sections[section].type.name for section in program.schedule]
    assert types == ["FWD", "BCKWD", "REDUCE", "OPT", "FWD"]
    listed = [program.symbols[index] for index in reduce.inputs]
    assert {symbol.kind for symbol in listed} == {SymbolKind.GRADIENT}
    trained = [symbol for symbol in program.symbols if symbol.kind is SymbolKind.WEIGHT]
    parameters = sum(symbol.size for symbol in trained if "pack" not in symbol.name)
    assert sum(symbol.size for symbol in listed) == parameters
    assert len(listed) < 4
    assert (reduce.variants, reduce.outputs, reduce.groups) == ((), (), ())
    assert check_plans(program) == []


def test_balanced_losses_are_reduced_before_they_are_balanced():
    program = compiled(16, accumulate=True, max_grad_norm=1.0)
    assert check_plans(program) == []
    types = [program.sections[section].type.name for section in program.schedule]
    assert [kind for kind in types if kind != "FWD"] == [
        "ZEROGRAD", "BCKWD", "REDUCE", "GRADNORM", "OPT",
    ]  # fmt: skip


def test_a_reduction_behind_what_uses_it_is_found():
    program = compiled(16)
    reduce = next(i for i, s in enumerate(program.sections) if s.type is SectionType.REDUCE)
    at = program.schedule.index(reduce)
    schedule = list(program.schedule)
    schedule[at], schedule[at + 1] = schedule[at + 1], schedule[at]
    found = check_program(replace(program, schedule=tuple(schedule)))
    assert "call 3 reduces gradients that an earlier call has used" in found


def test_data_parallel_is_for_training():
    with pytest.raises(sambac.CompileError, match="data_parallel: of use only in training"):
        sambac.CompileOptions(data_parallel=True)
