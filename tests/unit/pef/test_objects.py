"""What code keeps in Python objects is found, and put back."""

from __future__ import annotations

import functools
import importlib
import inspect
import threading
import weakref
from argparse import Namespace
from cmd import Cmd
from collections import OrderedDict, UserDict, UserList, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar, NoReturn

import numpy as np
import pytest

from pef.objects import ObjectSnapshot

SHELF: dict[str, object] = {"old": 1}
UNNAMED = {"old": 1}


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
        self.foreign = Cmd()
        self.circle = [self]

    def forward(self) -> None:
        SHELF["new"], SHELF["old"] = np.ones(2), 2
        self.count += 1
        self.shelf.items.append((np.ones(2), "text"))
        self.rows.appendleft(np.ones(1))
        self._parameters["weight"] = np.ones(2)
        self.foreign.tensor = np.ones(4)  # type: ignore[attr-defined]
        kept(3)


def remembered(module: Module) -> ObjectSnapshot:
    return ObjectSnapshot([module], lambda value: isinstance(value, np.ndarray))


def test_changes_are_told_by_their_paths() -> None:
    module = Module()
    memory = remembered(module)
    assert [id(tensor) for _, tensor in memory.tensors] == [id(module.table)]
    module.forward()
    found = {change.path: change for change in memory.changes()}
    rows = {f"Module.rows[{number}]" for number in range(3)}
    shelves = {"Module.shelf.items[0]", "SHELF.new", "SHELF.old"}
    assert set(found) == {"Module.count", "Module.foreign.tensor", *rows, *shelves}
    assert found["Module.rows[0]"].standing.direct
    assert not found["Module.shelf.items[0]"].standing.direct
    assert len(memory.new_tensors(found["Module.shelf.items[0]"].value)) == 1
    assert not memory.new_tensors([module.table])
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


def test_what_code_names_is_put_back_but_for_tables_of_modules() -> None:
    module = Module()
    memory = remembered(module)
    module.forward()
    assert memory.restore() == []
    assert SHELF == {"old": 1}
    assert module._parameters["weight"].shape == (2,)
    assert not hasattr(module.foreign, "tensor")
    assert kept.cache_info().currsize == 0


def test_variables_that_no_code_names_are_not_looked_into() -> None:
    memory = remembered(Module())
    UNNAMED["old"] = 2
    globals()["LATE"] = 3
    assert memory.changes() == []
    memory.restore()
    assert (UNNAMED, globals().pop("LATE")) == ({"old": 2}, 3)


def test_long_chains_are_followed() -> None:
    module = Module()
    module.circle = []
    end = module.circle
    for _ in range(3000):
        end.append([])
        end = end[0]
    memory = remembered(module)
    end.append(np.ones(1))
    memory.restore()
    assert end == []


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


class Table:
    """A namespace of the user's, with a cache in it."""

    rows: ClassVar[dict[int, np.ndarray]] = {}

    @classmethod
    def get(cls, size: int) -> np.ndarray:
        return cls.rows.setdefault(size, np.ones(size))

    @staticmethod
    @functools.lru_cache(maxsize=1)
    def once(size: int) -> np.ndarray:
        return np.full(size, 2.0)


def counted(values: list[np.ndarray] = []) -> None:  # noqa: B006 - what is kept so is looked for
    values.append(np.ones(1))
    counted.last = values[-1]


def enclosing() -> Callable[[], None]:
    held: list[np.ndarray] = []
    found: np.ndarray | None = None

    def inner() -> None:
        nonlocal found
        held.append(np.ones(1))
        found = held[-1]

    return inner


INNER = enclosing()
LOCAL = threading.local()
BY_OBJECT: weakref.WeakKeyDictionary[object, np.ndarray] = weakref.WeakKeyDictionary()


class Wide(Module):
    """What keeps arrays where only its code leads to."""

    def __init__(self) -> None:
        super().__init__()
        self.space = SimpleNamespace(row=None, count=0)

    def forward(self) -> None:
        self.space.row, self.space.count = np.ones(1), self.space.count + 1
        Table.get(3)
        Table.once(3)
        counted()
        INNER()
        LOCAL.row = np.ones(1)
        BY_OBJECT[self] = np.ones(1)


def test_arrays_are_found_wherever_code_gets_to() -> None:
    module = Wide()
    memory = remembered(module)
    module.forward()
    changed = {change.path for change in memory.changes()}
    assert changed >= {
        "Wide.space.row",
        "Wide.space.count",
        "Table.rows[3]",
        "counted[0][0]",
        "counted.last",
        "inner.held[0]",
        "inner.found",
        "LOCAL.row",
    }
    memory.restore()
    assert (module.space.row, module.space.count) == (None, 0)
    assert (Table.rows, Table.once.cache_info().currsize) == ({}, 0)
    assert counted.__defaults__ == ([],)
    assert not hasattr(counted, "last")
    assert inspect.getclosurevars(INNER).nonlocals == {"held": [], "found": None}
    assert not hasattr(LOCAL, "row")
    assert not BY_OBJECT


class Elements:
    """A module that counts in an array, and whose other attributes are new and equal."""

    def __init__(self) -> None:
        self.counts, self.shape, self.number = np.zeros(2), (1, 2), 1000.5

    def forward(self) -> None:
        self.counts[1] += 1
        self.shape, self.number = (*self.shape,), float("1000.5")


def test_elements_of_arrays_are_put_back() -> None:
    module = Elements()
    memory = ObjectSnapshot([module], lambda value: False)
    module.forward()
    assert [change.path for change in memory.changes()] == ["Elements.counts"]
    memory.restore()
    assert not module.counts.any()


class Lazy(OrderedDict[str, int]):
    """A dict whose items are made when they are asked for."""

    def items(self) -> NoReturn:  # type: ignore[override]
        raise AssertionError


def test_dicts_are_not_asked_for_items_of_their_own_making() -> None:
    module = Module()
    module.table = Lazy(a=1)
    memory = remembered(module)
    module.table["a"] = 2
    assert [change.path for change in memory.changes()] == ["Module.table.a"]
    memory.restore()
    assert dict.__getitem__(module.table, "a") == 1


class Standard:
    """What keeps arrays in containers of the standard library."""

    def __init__(self) -> None:
        self.space, self.table, self.rows = Namespace(step=0), UserDict({"a": 1}), UserList([0])
        self.ordered = OrderedDict(a=1, b=2)

    def forward(self) -> None:
        self.space.step += 1
        self.table["b"] = self.ordered["c"] = np.ones(1)
        self.rows[0] += 1
        del self.ordered["b"]
        self.ordered.move_to_end("a")


def test_containers_of_the_standard_library_are_put_back() -> None:
    module = Standard()
    memory = remembered(module)
    module.forward()
    assert len(memory.changes()) == 5
    memory.restore()
    assert (module.space.step, dict(module.table), list(module.rows)) == (0, {"a": 1}, [0])
    assert list(module.ordered.items()) == [("a", 1), ("b", 2)]
    assert len(module.ordered) == 2
    module.ordered["d"] = 3
    assert [*module.ordered] == ["a", "b", "d"]


@pytest.mark.parametrize(("folder", "near"), [("site-packages", False), ("own", True)])
def test_what_packages_hold_is_not_near(
    folder: str, near: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / f"counting_{near}.py").write_text(
        "import torch\n\ncalls = [0]\n\n\ndef count():\n    calls[0] += 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path / folder)
    count = importlib.import_module(f"counting_{near}").count

    class Calling:
        def forward(self) -> None:
            count()

    module = Calling()
    memory = ObjectSnapshot([module], lambda value: False)
    module.forward()
    assert {(change.path, change.standing.near) for change in memory.changes()} == {
        ("calls[0]", near)
    }


_CACHES = """
registry = {}


def remember(key, value):
    registry[key] = value


def cached(function):
    kept = {}

    def wrapper(key):
        if key not in kept:
            kept[key] = function(key)
        remember(key, "found")
        return kept[key]

    return wrapper
"""


def test_of_packages_without_torch_what_their_functions_enclose_is_seen_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache of such a package holds what the user's function makes; its tables are its own."""
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "plain_caches.py").write_text(_CACHES)
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    made = importlib.import_module("plain_caches").cached(lambda key: [key])

    class Caching:
        def forward(self) -> list[int]:
            return made(1)  # type: ignore[no-any-return]

    module = Caching()
    memory = ObjectSnapshot([module], lambda value: False)
    module.forward()
    assert [(change.path, change.value) for change in memory.changes()] == [
        ("wrapper.kept[1]", [1])
    ]
    assert "registry" not in memory.names


_LATE = "kept = {}\ndef remember(key):\n    import torch\n    kept.setdefault(key, torch.ones(1))\n"


def test_functions_that_import_torch_themselves_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "late_torch.py").write_text(_LATE)
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    remember = importlib.import_module("late_torch").remember

    class Remembering:
        def forward(self) -> None:
            remember(1)

    module = Remembering()
    memory = ObjectSnapshot([module], lambda value: False)
    module.forward()
    assert [change.path for change in memory.changes()] == ["kept[1]"]
