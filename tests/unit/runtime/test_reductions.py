"""Reductions beside sections: what begins when, and what waits for what, as a log of events."""

from __future__ import annotations

from types import SimpleNamespace

from sambarun.execution.reductions import ReduceStep, UnderWay, with_waits
from sambarun.linking.schedule import Unit

A, B, C = range(3)
W = 9


class Network:
    """A link over which gradients arrive while somebody waits, and at `arriving`, at once.

    They come in the order in which they were begun, or in that of `order`.
    """

    def __init__(self, order="", arriving=""):
        self.log = []
        self._order, self._arriving = order, arriving
        self._begun = []
        self._there = set()

    def start(self, name, buffer):
        self.log.append(f"start {name}")
        self._begun.append(name)
        self._there.discard(name)
        if name in self._arriving:
            self._there.add(name)
        return SimpleNamespace(done=lambda: name in self._there, wait=lambda: self._wait(name))

    def _wait(self, name):
        if name not in self._there:
            self.log.append(f"wait {name}")
        for other in self._order or self._begun:
            if name in self._there:
                return
            self._there.add(other)


class Section:
    """A step that notes that it runs."""

    kind = ""
    repeatable = True

    def __init__(self, network, name, reads=(), writes=()):
        self.unit = Unit((0,), (0,), tuple(reads), (), tuple(writes))
        self._note = lambda: network.log.append(name)

    def run(self, memory, done):
        self._note()
        done.append(None)


class Apart:
    """No two symbols share memory."""

    def touched(self, unit):
        return {*unit.inputs, *unit.outputs}

    def conflict(self, earlier, later):
        writes = set(earlier.outputs) & {*later.inputs, *later.outputs}
        return bool(writes or set(earlier.inputs) & set(later.outputs))


def events(mode, *steps, network=None):
    """Return what happens in a run: a step is (name, reads, writes), or gradients to reduce."""
    network, way = network or Network(), UnderWay()
    made = [
        Section(network, *step)
        if isinstance(step[0], str)
        else ReduceStep(
            Unit((0,), (0,), step, (), ()), ["abc"[symbol] for symbol in step], network, way
        )
        for step in steps
    ]
    planned = with_waits(made, Apart(), mode, way)
    memory = SimpleNamespace(view=lambda symbol: None)
    for _ in range(2):  # the second run begins as the first did
        for step in planned:
            step.run(memory, [])
    half = len(network.log) // 2
    assert network.log[:half] == network.log[half:]
    return ", ".join(network.log[:half])


BACKWARD = (("b0", (), (A,)), (A,), ("b1", (), (B,)), (B,), ("b2", (), (C,)), (C,))
UPDATES = (("oa", (A,)), ("ob", (B,)), ("oc", (C,)))
BEGUN = "b0, start a, b1, start b, b2, start c"


def test_each_reduction_begins_as_soon_as_its_gradients_are_there():
    for mode in ("inorder", "optimal"):
        found = events(mode, *BACKWARD, *UPDATES)
        assert found == f"{BEGUN}, wait a, oa, wait b, ob, wait c, oc"


def test_in_mode_normal_nothing_runs_beside_reductions():
    reduced = (A,), (B,), (C,)
    backward = [step for step in BACKWARD if isinstance(step[0], str)]
    found = events("normal", *backward, *reduced, *UPDATES)
    assert found == "b0, b1, b2, start a, start b, start c, wait a, wait b, wait c, oa, ob, oc"


def test_what_reads_no_gradient_waits_for_none():
    count = ("count", (W,), (W,))
    for mode in ("inorder", "optimal"):
        assert events(mode, *BACKWARD[:2], count, *UPDATES[:1]) == (
            "b0, start a, count, wait a, oa"
        )


def test_updates_run_as_their_gradients_arrive():
    late = {"network": Network(arriving="c")}
    assert events("optimal", *BACKWARD, *UPDATES, **late) == (
        f"{BEGUN}, oc, wait a, oa, wait b, ob"
    )
    late = {"network": Network(arriving="c")}
    assert events("inorder", *BACKWARD, *UPDATES, **late) == (
        f"{BEGUN}, wait a, oa, wait b, ob, oc"
    )


def test_the_host_waits_for_one_gradient_alone_while_another_step_may_get_ready():
    both = ("oac", (A, C))
    assert events("optimal", *BACKWARD, both, ("ob", (B,))) == (
        f"{BEGUN}, wait a, wait b, ob, wait c, oac"
    )
    assert events("inorder", *BACKWARD, both, ("ob", (B,))) == f"{BEGUN}, wait a, wait c, oac, ob"


def test_while_the_host_waits_others_may_arrive():
    late = {"network": Network(order="cba")}
    assert events("optimal", *BACKWARD, *UPDATES, **late) == f"{BEGUN}, wait a, oa, ob, oc"


def test_nothing_overtakes_what_it_depends_on():
    shared = ("oa", (A,), (W,)), ("ob", (B, W)), ("oc", (C,))
    late = {"network": Network(arriving="bc")}
    assert events("optimal", *BACKWARD, *shared, **late) == f"{BEGUN}, oc, wait a, oa, ob"


def test_what_nobody_reads_is_waited_for_at_the_end():
    for mode in ("inorder", "optimal"):
        assert events(mode, *BACKWARD, *UPDATES[:1]) == f"{BEGUN}, wait a, oa, wait b, wait c"
        assert events(mode, *BACKWARD[:2]) == "b0, start a, wait a"


def test_a_run_that_did_not_come_to_its_end_is_finished_first():
    network, way = Network(), UnderWay()
    memory = SimpleNamespace(view=lambda symbol: None)
    step = ReduceStep(Unit((0,), (0,), (A,), (), ()), ["a"], network, way)
    step.run(memory, [])
    step.run(memory, [])
    assert network.log == ["start a", "wait a", "start a"]
