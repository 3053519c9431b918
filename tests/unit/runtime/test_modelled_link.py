"""The link that the benchmark of data parallel training models, and what it takes for possible."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from training_variants import reducing

from benchmarks import modelled_link
from benchmarks.data_parallel import parts_hidden
from benchmarks.modelled_link import Link, exposed


class Clock:
    """A clock that goes on by sleeping alone."""

    now = 100.0

    def perf_counter(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def test_gradients_pass_one_after_the_other(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(modelled_link, "time", clock)
    link = Link(1000.0)
    first = link.start("a", np.zeros(1000, np.float32))
    clock.sleep(1)
    second = link.start("b", np.zeros(500, np.float32))
    assert (first.arrives, second.arrives) == (104.0, 106.0)
    assert not first.done()
    first.wait()
    assert (clock.now, link.waited) == (104.0, 3.0)
    assert first.done()
    assert not second.done()
    clock.sleep(3)
    second.wait()
    assert (clock.now, link.waited) == (107.0, 3.0)
    assert link.start("c", np.zeros(250, np.float32)).arrives == 108.0


def test_hidden_is_a_part_of_the_time_of_the_network():
    times = {"none": 1.0, "normal": 3.0, "inorder": 2.0, "optimal": 1.5}
    assert parts_hidden(times) == {"inorder": 0.5, "optimal": 0.75}
    on_a_link = {"network": 4.0, "waited inorder": 3.0, "waited optimal": 1.0}
    assert parts_hidden({**times, **on_a_link}) == {"inorder": 0.25, "optimal": 0.75}


def test_what_a_program_exposes_to_its_network():
    """One backward section, one reduction of all gradients: nothing runs beside it but masks."""
    program = reducing().program()
    graph = program.graphs[0]
    spans = [
        SimpleNamespace(call=call, duration=2e9)
        for call in range(graph.first_call, graph.first_call + graph.calls)
    ]
    nbytes = sum(
        program.symbols[i].size
        for section in program.sections
        if section.type.name == "REDUCE"
        for i in section.inputs
    )
    assert exposed(program, spans, bandwidth=nbytes / 3.0) == pytest.approx(3.0)
    assert exposed(program, spans, bandwidth=1e18) == pytest.approx(0.0, abs=1e-6)
