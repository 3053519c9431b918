"""What code keeps in Python objects is found, and put back."""

from __future__ import annotations

import functools
from argparse import Namespace
from collections import deque
from collections.abc import Iterator

import numpy as np
import pytest

from pef.objects import ObjectSnapshot

SHELF: dict[str, object] = {"old": 1}


@pytest.fixture(autouse=True)
def _as_at_first() -> Iterator[None]:
    yield
    SHELF.clear()
    SHELF["old"] = 1
    kept.cache_clear()


class Shelf:
    def __init__(self) -> None:
        self.items: list[object] = []


@functools.cache
def kept(number: int) -> np.ndarray:
    return np.full(2, number)


class Module:
    """What looks like a module: it has `forward`, attributes, and tables that are not its own."""

    def __init__(self) -> None:
        self._parameters = {"weight": np.ones(1)}
        self.table = np.zeros(3)
        self.count, self.shelf, self.rows = 0, Shelf(), deque([1, 2])
        self.foreign = Namespace(tensor=None)
        self.circle = [self]

    def forward(self) -> None:
        SHELF["new"], SHELF["old"] = np.ones(2), 2
        self.count += 1
        self.shelf.items.append((np.ones(2), "text"))
        self.rows.appendleft(np.ones(1))
        self._parameters["weight"] = np.ones(2)
        self.foreign.tensor = np.ones(4)
        kept(3)


def remembered(module: Module) -> ObjectSnapshot:
    return ObjectSnapshot([module], lambda value: isinstance(value, np.ndarray))


def test_changes_are_told_by_their_paths() -> None:
    module = Module()
    memory = remembered(module)
    assert [id(tensor) for tensor in memory.tensors] == [id(module.table)]
    module.forward()
    found = {change.path: change for change in memory.changes()}
    rows = {f"Module.rows[{number}]" for number in range(3)}
    shelves = {"Module.shelf.items[0]", "SHELF.new", "SHELF.old"}
    assert set(found) == {"Module.count", *rows, *shelves}
    assert found["Module.rows[0]"].direct
    assert not found["Module.shelf.items[0]"].direct
    assert len(memory.new_tensors(found["Module.shelf.items[0]"].value)) == 1
    assert not memory.holds_tensors([module.table])
    memory.restore()


def test_what_a_module_has_is_put_back() -> None:
    module = Module()
    rows, items = module.rows, module.shelf.items
    memory = remembered(module)
    module.forward()
    module.late = module.table
    del module.circle
    memory.restore()
    assert (module.count, module.rows, items) == (0, deque([1, 2]), [])
    assert module.rows is rows
    assert module.circle == [module]
    assert not hasattr(module, "late")


def test_what_is_not_the_modules_is_left_but_for_tensors() -> None:
    module = Module()
    memory = remembered(module)
    module.forward()
    memory.restore()
    assert SHELF == {"old": 2}
    assert module._parameters["weight"].shape == (2,)
    assert module.foreign.tensor.shape == (4,)
    assert kept.cache_info().currsize == 0
    SHELF["old"] = 1


def test_code_behind_decorators_is_looked_into() -> None:
    def decorated(function: object) -> object:
        def stand_in(*args: object) -> object:
            return function(*args)  # type: ignore[operator]

        # What a decorator makes in another file has the global variables of that file.
        return type(stand_in)(stand_in.__code__, {}, "stand_in", None, stand_in.__closure__)

    class Decorated:
        forward = decorated(Module.forward)

    memory = ObjectSnapshot([Decorated()], lambda value: isinstance(value, np.ndarray))
    SHELF["behind"] = np.ones(1)
    memory.restore()
    assert "behind" not in SHELF


class Loud:
    """A key that is not to be asked for its text, which is somebody's code."""

    def __repr__(self) -> str:
        raise AssertionError


def test_keys_are_not_asked_for_their_texts() -> None:
    loud, module = Loud(), Module()
    module.table = {loud: [1], (loud, 1): [2], 3: [3]}
    memory = remembered(module)
    for entries in module.table.values():
        entries.append(np.ones(1))
    assert [change.path for change in memory.changes()] == [
        "Module.table[a Loud][1]",
        "Module.table[a tuple][1]",
        "Module.table[3][1]",
    ]
