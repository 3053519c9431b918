"""The link that the benchmark of data parallel training models, and what it takes for possible."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from training_variants import reducing

from benchmarks import modelled_link
from benchmarks.data_parallel import parts_hidden
from benchmarks.modelled_link import Link, Timeline, timeline

SECONDS = {0: 4.0, 1: 0.5, 2: 4.0, 3: 0.5, 4: 1.0, 5: 1.0}
"""Two backward sections, a reduction behind each, and the updates of both."""


@pytest.mark.parametrize(
    ("bandwidth", "exposed"),
    [
        (1.0, 3.0),  # the second arrives at 12, the first update is over at 9
        (4.0, 0.0),  # 9: the second arrives during the first update
        (0.5, 11.0),  # the link is never free: the gradients arrive at 12 and 20
        (1e9, 0.0),
    ],
)
def test_what_cannot_be_hidden(bandwidth, exposed):
    line = Timeline(SECONDS, sent={1: 4, 3: 4}, awaited={4: [1], 5: [3]})
    found = line.exposed(bandwidth)
    assert found == pytest.approx(exposed, abs=1e-6)


def test_updates_that_wait_for_nothing_hide_all():
    line = Timeline(SECONDS, sent={1: 4, 3: 4})
    assert line.exposed(0.001) == 0


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


def test_a_timeline_of_a_program():
    program = reducing().program()
    kinds = [program.sections[section].type.name for section in program.schedule]
    graph = program.graphs[0]
    spans = [
        SimpleNamespace(call=call, duration=2e9)
        for call in range(graph.first_call, graph.first_call + graph.calls)
    ]
    line = timeline(program, spans)
    (reduce,) = line.sent
    assert kinds[reduce] == "REDUCE"
    assert line.sent[reduce] == sum(
        program.symbols[i].size for i in program.sections[program.schedule[reduce]].inputs
    )
    waiting = [call for call, others in line.awaited.items() if others]
    assert {kinds[call] for call in waiting} == {"OPT"}
    assert set(line.seconds.values()) == {2.0}
