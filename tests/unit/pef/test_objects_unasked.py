"""Objects that are not to be asked what they are, and data that no code names."""

from __future__ import annotations

import abc
import importlib
import itertools
import mmap
import sys
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from pef.objects import ObjectSnapshot
from pef.reached_code import ReachedCode, is_of

COUNTS = [0]


def counted() -> None:
    COUNTS[0] += 1


BY_NAME = {"counted": counted}
DATA = np.zeros(1 << 26)  # more than is looked into


class Module:
    """What looks like a module, with something in it, and what a call does."""

    def __init__(self, state: Any, step: Callable[[Module], object] = lambda module: None) -> None:
        self.state, self.step = [state], step

    def forward(self) -> None:
        self.step(self)


def remembered(module: Module) -> ObjectSnapshot:
    return ObjectSnapshot([module], lambda value: is_of(value, np.ndarray))


def _refuse(*_: object) -> NoReturn:
    raise AssertionError


class StandIn:
    """What stands for an object that is not there yet, as a request that a server has."""

    __class__ = property(_refuse)  # type: ignore[assignment]
    __dict__ = property(_refuse)  # type: ignore[assignment]
    __getattr__ = _refuse


class Bare:
    __slots__ = ("rows",)
    __getattr__ = _refuse


class Watched(list[int]):
    """A list that tells others what happens to it."""

    append = extend = clear = __iter__ = _refuse


def released() -> memoryview:
    view = memoryview(bytearray(2))
    view.release()
    return view


def closed() -> mmap.mmap:
    memory = mmap.mmap(-1, 4096)
    memory.close()
    return memory


UNASKED: dict[str, Callable[[], object]] = {
    "stands for another": StandIn,
    "slots": Bare,
    "own list": lambda: Watched([1]),
    "proxy of what is gone": lambda: weakref.proxy(Module(0)),
    "released": released,
    "closed": closed,
}


@pytest.mark.parametrize("what", UNASKED)
def test_nothing_is_asked_of_them(what: str) -> None:
    memory = remembered(Module(UNASKED[what]()))
    assert memory.changes() == []
    assert memory.restore() == []


def test_lists_of_their_own_making_are_put_back() -> None:
    def step(module: Module) -> None:
        list.append(module.state[0], 2)

    module = Module(Watched([1]), step)
    memory = remembered(module)
    module.forward()
    assert [change.path for change in memory.changes()] == ["Module.state[0][1]"]
    memory.restore()
    assert len(module.state[0]) == 1


def test_what_iterators_have_for_themselves_is_left() -> None:
    module = Module(itertools.cycle(iter([1, 2])), lambda one: next(one.state[0]))
    memory = remembered(module)
    for _ in range(3):
        module.forward()
    assert "Module.state[0]" in memory.restore()
    assert next(module.state[0]) == 2


def test_numbers_that_become_arrays() -> None:
    def step(module: Module) -> None:
        module.state[0] = (np.ones(2), 1, np.ones(3))

    module = Module((0, 1, None), step)
    memory = remembered(module)
    module.forward()
    paths = {change.path for change in memory.changes()}
    assert paths == {"Module.state[0][0]", "Module.state[0][2]"}
    memory.restore()
    assert module.state == [(0, 1, None)]


class Abstract(abc.ABC):  # noqa: B024 - what is abstract makes no difference
    """A class that knows of which others it has been asked whether they are it."""


def test_what_abstract_classes_have_been_asked_is_their_own() -> None:
    def step(module: Module) -> object:
        return isinstance(module.state[0], Abstract)

    module = Module(0, step)
    memory = remembered(module)
    module.forward()
    assert memory.changes() == []
    assert memory.restore() == []


def test_code_that_variables_lead_to_is_looked_into() -> None:
    module = Module(0, lambda module: BY_NAME["counted"]())
    memory = remembered(module)
    module.forward()
    assert [change.path for change in memory.changes()] == ["COUNTS[0]"]
    memory.restore()
    assert COUNTS == [0]


def test_data_that_no_code_names_is_not_looked_into() -> None:
    named = remembered(Module(0, lambda module: DATA.size))
    assert named.unseen == []  # the array is a tensor here
    by_size = ObjectSnapshot([Module(0)], lambda value: False)
    assert by_size.unseen == []
    by_name = ObjectSnapshot([Module(0, lambda module: DATA.size)], lambda value: False)
    assert by_name.unseen == ["DATA"]


def test_code_is_reached_once() -> None:
    code = ReachedCode()
    found: Sequence[object] = (counted, Module)
    assert code.reach(found)
    files, functions = dict(code.files), code.functions
    assert functions
    assert not code.reach(found)
    assert code.files == files
    assert code.functions == []
    assert code.reach([*found, remembered])
    assert remembered in code.functions
    assert not {*functions}.intersection(code.functions)


def test_asserts_of_a_test_do_not_lead_to_all_tests() -> None:
    def step(module: Module) -> None:
        assert module.state == [0]

    assert remembered(Module(0, step)).found(pytest.Item) == []


def test_a_package_may_have_other_entries_than_modules(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Such as None, by which an import is forbidden."""
    folder = tmp_path / "site-packages" / "odd_package"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("def turned(x): return x[::-1]\n")
    monkeypatch.syspath_prepend(folder.parent)
    package = importlib.import_module("odd_package")
    monkeypatch.setitem(sys.modules, "odd_package.absent", None)  # type: ignore[arg-type]
    assert remembered(Module(package.turned)).changes() == []
