"""Updates in place: what is safe, what the checker refuses, what is one parameter's update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pef.program import SectionType
from sambac.facts import Pack
from sambac.planning.check_memory import check_updates
from sambac.planning.fusion import update_groups
from sambac.planning.plans import LiveSets, PersistentBuffers
from sambac.planning.view import DataflowView

Make = Callable[..., DataflowView]


def _calls(view: DataflowView, *sections: str) -> list[LiveSets]:
    return [LiveSets(tuple(ops.split()), (), (), ()) for ops in sections]


def test_a_reader_in_an_earlier_section_is_safe(make_view: Make) -> None:
    view = make_view("a: MatMul(x, p) -> g\n b: Add(p, g) -> q", outputs="q")
    persistent = PersistentBuffers(states=("p",), updates={"q": "p"})
    assert check_updates(view, _calls(view, "a", "b"), persistent) == []


def test_an_ancestor_of_the_writer_is_safe_in_its_section(make_view: Make) -> None:
    view = make_view("a: Mul(p, p) -> g\n b: Add(p, g) -> q", outputs="q")
    persistent = PersistentBuffers(states=("p",), updates={"q": "p"})
    assert check_updates(view, _calls(view, "a b"), persistent) == []


def test_a_reader_beside_the_writer_is_refused(make_view: Make) -> None:
    view = make_view("a: Exp(p) -> y\n b: Add(p, g) -> q", outputs="y q")
    persistent = PersistentBuffers(states=("p",), updates={"q": "p"})
    (problem,) = check_updates(view, _calls(view, "a b"), persistent)
    assert problem == "'a' may read 'p' after 'b' has overwritten it"


def test_a_reader_in_a_later_section_is_refused(make_view: Make) -> None:
    view = make_view("b: Add(p, g) -> q\n a: Exp(p) -> y", outputs="y q")
    persistent = PersistentBuffers(states=("p",), updates={"q": "p"})
    (problem,) = check_updates(view, _calls(view, "b", "a"), persistent)
    assert problem == "'a' reads 'p' after 'b' has overwritten it"


def test_who_reads_a_reset_several_times_must_be_the_one_that_adds_to_it(make_view: Make) -> None:
    updates = {"zero": "p", "q": "p"}
    persistent = PersistentBuffers(states=("p",), updates=updates)
    good = make_view("z: ConstantOfShape() -> zero\n b: Add(zero, g) -> q", outputs="zero q")
    assert check_updates(good, _calls(good, "z", "b"), persistent) == []
    text = "z: ConstantOfShape() -> zero\n a: Exp(zero) -> y\n b: Add(p, y) -> q"
    bad = make_view(text, outputs="zero q")
    (problem,) = check_updates(bad, _calls(bad, "z", "a b"), persistent)
    assert problem == "'a' reads 'zero', which may have been overwritten since it was made"


def test_a_writer_that_mixes_elements_is_refused(make_view: Make) -> None:
    view = make_view("b: MatMul(p, g) -> q", outputs="q")
    persistent = PersistentBuffers(states=("p",), updates={"q": "p"})
    (problem,) = check_updates(view, _calls(view, "b"), persistent)
    assert "does not read element by element" in problem


def test_a_flat_update_overwrites_what_lies_in_the_pack(make_view: Make) -> None:
    view = make_view("b: Add(flat, g) -> q\n a: Exp(p) -> y", outputs="y q")
    pack = Pack("flat", 128, (("p", 0),))
    persistent = PersistentBuffers(states=("p", "flat"), updates={"q": "flat"}, packs=(pack,))
    assert check_updates(view, _calls(view, "b", "a"), persistent)
    assert check_updates(view, _calls(view, "a", "b"), persistent) == []


def test_what_depends_on_nothing_resets_for_later_readers(make_view: Make) -> None:
    view = make_view("z: ConstantOfShape() -> zero\n a: Add(g, x) -> total", outputs="zero total")
    persistent = PersistentBuffers(states=("g",), updates={"zero": "g", "total": "g"})
    assert check_updates(view, _calls(view, "z", "a"), persistent) == []


@pytest.fixture
def adam(make_view: Make) -> DataflowView:
    ops = """
        corr: Neg(lr) -> rate
        m1: Mul(p, g) -> a1
        n1: GatedAdd(p, a1, rate) -> p_next
        m2: Mul(q, h) -> a2
        n2: GatedAdd(q, a2, rate) -> q_next
    """
    names = ("corr", "m1", "n1", "m2", "n2")
    view = make_view(ops, outputs="p_next q_next", types=dict.fromkeys(names, SectionType.OPT))
    values = dict(view.values)
    values["lr"] = replace(values["lr"], shape=(), dtype=11)
    return replace(view, values=values)


def test_what_updates_one_parameter_is_one_group(adam: DataflowView) -> None:
    assert update_groups(adam) == [("m1", "n1"), ("m2", "n2")]


def test_only_optimizers_are_grouped(adam: DataflowView) -> None:
    ops = {name: replace(op, section_type=SectionType.FWD) for name, op in adam.ops.items()}
    assert update_groups(replace(adam, ops=ops)) == []
