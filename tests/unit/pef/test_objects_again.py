"""What is found again from an earlier finding is what is found anew."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from threading import Lock

import numpy as np
import pytest

from pef import objects
from pef.objects import ObjectSnapshot

COUNTS: dict[str, object] = {"calls": 0}
TOTAL = 0


class Part:
    def __init__(self) -> None:
        self.rows: list[object] = [1, [2]]
        self.rate = 0.5


@functools.cache
def cached(number: int) -> np.ndarray:
    return np.full(2, number)


class Module:
    def __init__(self) -> None:
        self.count, self.part = 0, Part()
        self.table, self.text = np.zeros(3), io.StringIO("text")
        self.text.mode = "w"  # attributes are part of its state, which is made when asked for
        self.forward = self._forward  # type: ignore[method-assign, assignment]

    def _forward(self) -> None:
        COUNTS["calls"] = TOTAL
        cached(3)

    def forward(self) -> None: ...

    def later(self) -> None:
        """Change all that a first change may have led to."""
        self.count += 10
        self.part.rate += 10
        for value in (self.part.rows, self.part.rows[1], getattr(self, "more", None)):
            if isinstance(value, list):
                value.append(10)
        cached(4)


def _counts(module: Module) -> None:
    global TOTAL
    TOTAL += 1
    COUNTS["calls"] = module.count = 7
    COUNTS["more"] = "text"
    module.part.rate = 2.5


def _deletes(module: Module) -> None:
    del module.count
    module.count = 1
    del module.part.rate
    module.part.rate = 0.5


def _replaces_by_equal(module: Module) -> None:
    module.part.rows = [*module.part.rows]


def _replaces_inside(module: Module) -> None:
    module.part.rows[1] = [2]


CHANGES: dict[str, Callable[[Module], object]] = {
    "nothing": lambda m: None,
    "numbers": _counts,
    "deleted": _deletes,
    "bytes": lambda m: m.table.fill(1),
    "text of C code": lambda m: m.text.write("other"),
    "another list": lambda m: setattr(m, "more", []),
    "an equal list": _replaces_by_equal,
    "an equal list inside": _replaces_inside,
    "an object": lambda m: setattr(m, "part", Part()),
    "an array": lambda m: setattr(m, "table", np.zeros(3)),
    "a function": lambda m: setattr(m, "forward", m._forward),
    "a function of ours": lambda m: setattr(m, "forward", objects._path),
    "a cache": lambda m: m._forward(),
}


def _require_same(one: ObjectSnapshot, other: ObjectSnapshot) -> None:
    """Require that two have found the same objects, but for copies that C code makes."""
    found = [[each for each in of._containers if each.path != "Module.text"] for of in (one, other)]
    for each, another in zip(*found, strict=True):
        assert each.part.content is another.part.content
        assert (each.path, each.standing) == (another.path, another.standing)
        assert [*each.before] == [*another.before]
        assert all(map(objects._is_same, each.before.values(), another.before.values()))
    assert [id(tensor) for _, tensor in one.tensors] == [id(tensor) for _, tensor in other.tensors]
    assert one.names == other.names


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_found_again_is_what_is_found_anew(name: str) -> None:
    module = Module()
    memory = ObjectSnapshot([module], lambda value: isinstance(value, np.ndarray))
    CHANGES[name](module)
    before = {change.path for change in memory.changes()}
    again = memory.again([module])
    anew = ObjectSnapshot([module], lambda value: isinstance(value, np.ndarray))
    _require_same(again, anew)
    assert again.changes() == anew.changes() == []
    assert {change.path for change in memory.changes()} == before, "the earlier one is as it was"
    module.later()
    later = [change.path for change in again.changes()]
    assert later == [change.path for change in anew.changes()]
    assert later
    again.restore()
    assert again.changes() == anew.changes() == []


@pytest.mark.parametrize("earlier", [True, False])
def test_other_modules_are_looked_into(earlier: bool) -> None:
    one, other = Module(), Module()
    memory = ObjectSnapshot([one], lambda value: False)
    memory = memory.again([one, other] if earlier else [other])
    other.part.rows.append(3)
    assert [change.path for change in memory.changes()] == ["Module.part.rows[2]"]


def _of_another_class(module: Module) -> None:
    counts = [0]

    def count(self: Module) -> None:
        counts[0] += 1

    module.__class__ = type("Counting", (Module,), {"__init__": Module.__init__, "forward": count})


def _with_other_attributes(module: Module) -> None:
    module.__dict__ = {**vars(module)}


@pytest.mark.parametrize(
    ("replace", "changed"),
    [
        (_of_another_class, {"Counting.count", "count.counts[0]"}),
        (_with_other_attributes, {"Module.count"}),
    ],
)
def test_modules_of_other_classes_or_attributes_are_looked_into(
    replace: Callable[[Module], None], changed: set[str]
) -> None:
    module = Module()
    del module.forward
    memory = ObjectSnapshot([module], lambda value: False)
    replace(module)
    memory = memory.again([module])
    module.forward()
    module.count = 5
    assert {change.path for change in memory.changes()} >= changed


def test_an_object_that_holds_the_same_now_is_no_change() -> None:
    module, alike = Module(), Part()
    memory = ObjectSnapshot([module], lambda value: False)
    module.part.rate = alike.rate = 2.5
    memory = memory.again([module])
    module.part = alike
    assert memory.changes() == []


def test_what_a_cache_has_by_now_stays() -> None:
    module = Module()
    memory = ObjectSnapshot([module], lambda value: False)
    cached(5)
    held = cached.cache_info().currsize
    memory.again([module]).restore()
    assert cached.cache_info().currsize == held
    memory.restore()
    assert cached.cache_info().currsize == 0


@pytest.mark.parametrize("followed", [True, False])
def test_plain_values_and_locks_are_not_followed(
    monkeypatch: pytest.MonkeyPatch, followed: bool
) -> None:
    module = Module()
    module.part.rows = [Lock()]
    memory = ObjectSnapshot([module], lambda value: False)
    module.count = 5
    module.part.rows[0] = Lock()
    if followed:
        module.part.rows = []
    found: list[object] = []
    monkeypatch.setattr(ObjectSnapshot, "_add_code", lambda self, *args: found.append(self))
    memory.again([module])
    assert bool(found) is followed
