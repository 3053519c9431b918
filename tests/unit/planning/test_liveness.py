"""The graph of symbols, and the lifetimes read off it."""

from __future__ import annotations

from sambac.facts import Pack
from sambac.planning.liveness import lifetimes_of, moved_by_calls, symbol_graph
from sambac.planning.plans import GraphCalls, LiveSets, PersistentBuffers
from sambac.planning.view import Lifetime, Moment, ValueFacts, ValueRole

FACTS = {
    name: ValueFacts(name, role, 1, (4,), "tensor(float)", 16)
    for role, names in (
        (ValueRole.INPUT, "x s"),
        (ValueRole.WEIGHT, "w"),
        (ValueRole.ACTIVATION, "h y z s2"),
    )
    for name in names.split()
}


def live(reads: str, writes: str, weights: str = "") -> LiveSets:
    return LiveSets((), tuple(reads.split()), tuple(weights.split()), tuple(writes.split()))


def test_reads_and_writes_are_edges() -> None:
    """Two calls of one graph: x and w make h, and h and s a new s, which is the output."""
    calls = [live("x", "h", "w"), live("h s", "s2")]
    persistent = PersistentBuffers(states=("s", "idle"), updates={"s2": "s"})
    graph = symbol_graph(calls, [GraphCalls(("x",), ("s2",), 0, 2)], persistent)
    first, second = Moment(0, is_call=True), Moment(1, is_call=True)
    assert list(graph.successors("x")) == [first]
    assert list(graph.predecessors("x")) == [Moment(-1, is_call=False)]
    assert list(graph.successors(first)) == ["h"]
    assert list(graph.predecessors(second)) == ["h", "s"]
    assert list(graph.successors(second)) == ["s"]
    assert list(graph.successors("s")) == [second, Moment(2, is_call=False)]

    facts = FACTS | {"idle": FACTS["s"]}
    assert lifetimes_of(graph, facts, persistent, 2) == {
        "x": Lifetime(-1, 0, 2),
        "w": Lifetime(-1, 2, 1),
        "h": Lifetime(0, 1, 2),
        "s": Lifetime(-1, 2, 3),
        "idle": Lifetime(-1, 2, 0),
    }
    assert [moved_by_calls(graph, name) for name in ("x", "w", "h", "s", "idle")] == [1, 1, 2, 2, 0]


def test_what_is_kept_lives_to_the_end_of_its_graph() -> None:
    calls = [live("x", "h"), live("x", "y"), live("x", "z")]
    spans = [GraphCalls(("x",), ("y",), 0, 2), GraphCalls(("x",), ("z",), 2, 1)]
    kept = PersistentBuffers(kept=frozenset({"h", "z"}), packs=(Pack("p", 16, (("h", 0),)),))
    graph = symbol_graph(calls, spans, kept)
    lifetimes = lifetimes_of(graph, FACTS, kept, 3)
    assert lifetimes["h"] == Lifetime(0, 1, 1)
    assert lifetimes["x"] == Lifetime(-1, 2, 5)  # given to each graph
    assert lifetimes["y"] == Lifetime(1, 2, 2)
    assert lifetimes["z"] == Lifetime(2, 3, 2)


def test_the_caller_is_no_call() -> None:
    """The second graph begins where the caller takes what the first one gives."""
    calls = [live("x", "y"), live("x", "z")]
    spans = [GraphCalls(("x",), ("y",), 0, 1), GraphCalls(("x",), ("z",), 1, 1)]
    graph = symbol_graph(calls, spans, PersistentBuffers())
    assert moved_by_calls(graph, "y") == 1
    assert lifetimes_of(graph, FACTS, PersistentBuffers(), 2)["y"] == Lifetime(0, 1, 2)
