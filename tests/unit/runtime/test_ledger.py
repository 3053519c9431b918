"""What planned memory holds, beside a simulation that writes every byte."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from training_builder import Tensor
from training_programs import linear_regression

import pef
from pef.states import states_of
from sambarun.device.ledger import Ledger, Writes

SIZE = 64


def program(rng, count):
    """A program with `count` symbols at random places of 640 bytes, the last three in a pack."""
    spec = linear_regression()
    base = spec.program()
    symbols, allocations = [], []
    for number in range(count):
        address = rng.randrange(10) * 32
        size = rng.choice((1, 2, 3)) * 32
        allocations.append(pef.Allocation(pef.RegionKind.HBM, address, size))
        symbols.append(
            pef.Symbol(f"s{number}", pef.SymbolKind.ACTIVATION, 1, (size // 4,), "tensor(float)",
                       number, 0, size, 0, 1)
        )  # fmt: skip
    allocations.append(pef.Allocation(pef.RegionKind.HBM, rng.randrange(10) * 32, 2 * SIZE, "pack"))
    for name, offset, size in (("a", 0, SIZE), ("b", SIZE, SIZE), ("pack", 0, 2 * SIZE)):
        symbols.append(
            pef.Symbol(name, pef.SymbolKind.GRADIENT, 1, (size // 4,), "tensor(float)",
                       count, offset, size, 0, 1)
        )  # fmt: skip
    region = pef.Region(pef.RegionKind.HBM, 1 << 20, 640, 0, 0)
    return replace(
        base,
        symbols=tuple(symbols),
        allocations=tuple(allocations),
        regions=(region,),
        sections=(),
        schedule=(),
        graphs=(),
    )


class Bytes:
    """Memory where every byte knows who wrote it last; parts of a pack are the pack's bytes too."""

    def __init__(self, found):
        self.program = found
        self.owner = [None] * 1024
        self.valid = set()

    def span(self, index):
        symbol = self.program.symbols[index]
        start = self.program.allocations[symbol.allocation].address + symbol.offset
        return range(start, start + symbol.size)

    def run(self, writes):
        for index in writes.placed:
            for byte in self.span(index):
                self.owner[byte] = index
            self.valid.add(index)
        self.valid -= set(writes.hidden)

    def holds(self, index, parts=()):
        """All bytes of `index` were last written by itself, by its pack or by its parts."""
        if index not in self.valid and not parts:
            return False
        allowed = {index, *parts}
        return all(self.owner[byte] in allowed for byte in self.span(index))


@pytest.mark.parametrize("seed", range(40))
def test_what_is_held_was_written_last(seed):
    """The ledger may forget too much around a pack, never too little; elsewhere it is exact."""
    rng = random.Random(seed)
    count = 6
    found = program(rng, count)
    ledger, simulated = Ledger(found, states_of(found)), Bytes(found)
    a, b, pack = count, count + 1, count + 2
    plans = [Writes(tuple(rng.sample(range(count + 2), rng.randrange(1, 5))), ()) for _ in range(5)]
    for _ in range(12):
        plan = rng.choice(plans)
        ledger.note(plan)
        simulated.run(plan)
        if rng.random() < 0.6:
            for index in range(count):
                held = ledger.holds(index)
                assert not held or simulated.holds(index), index
                if not set(simulated.span(index)) & set(simulated.span(pack)):
                    assert held == simulated.holds(index), index
            for index in (a, b):
                assert not ledger.holds(index) or simulated.holds(index)
            assert not ledger.holds(pack) or simulated.holds(pack, (a, b))


def test_a_pack_is_held_when_its_parts_are():
    spec = linear_regression()
    tensors = {**spec.tensors, "flat": Tensor(pef.SymbolKind.GRADIENT, (32,))}
    for name, offset in (("w__grad", 0), ("b__grad", 64)):
        tensors[name] = replace(tensors[name], inside=("flat", offset))
    found = replace(spec, tensors=tensors).program()
    w, b, flat = (list(tensors).index(name) for name in ("w__grad", "b__grad", "flat"))
    ledger = Ledger(found, states_of(found))
    assert not ledger.holds(flat)
    ledger.note(Writes((w,), ()))
    assert ledger.holds(w)
    assert not ledger.holds(flat)
    ledger.note(Writes((b,), ()))
    assert ledger.holds(flat)
    ledger.forget([w])
    assert ledger.holds(b)
    assert not ledger.holds(flat)
    ledger.note(Writes((flat,), ()))
    assert ledger.holds(w)


def test_what_a_run_keeps_to_itself_is_out_of_date():
    found = linear_regression().program()
    ledger = Ledger(found, states_of(found))
    h = [symbol.name for symbol in found.symbols].index("h")
    ledger.note(Writes((h,), ()))
    assert ledger.holds(h)
    ledger.note(Writes((), (h,)))
    assert not ledger.holds(h)
