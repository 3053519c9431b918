"""Objects whose class, or whose dict of attributes, another one replaces as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pef.objects import ObjectSnapshot
from pef.reached_code import is_of


class Plain:
    def __init__(self) -> None:
        self.rate, self.rows = 1, [1]


class Other(Plain):
    more = 2


class Slots:
    __slots__ = ("rate",)

    def __init__(self) -> None:
        self.rate = 1


class OtherSlots:
    __slots__ = ("rate",)


class Odd:
    """What makes a dict of attributes when it is asked for one."""

    __slots__ = ()
    __dict__ = property(lambda self: {"made": object()})


class Module:
    def __init__(self) -> None:
        self.plain, self.slots, self.odd, self.count = Plain(), Slots(), Odd(), 0

    def forward(self) -> None: ...


class OtherModule(Module):
    pass


def _dict(module: Any) -> None:
    module.plain.__dict__ = {"rate": 3, "more": 4}


def _equal_dict(module: Any) -> None:
    module.plain.__dict__ = dict(vars(module.plain))


def _class(module: Any) -> None:
    module.plain.__class__ = Other


def _both(module: Any) -> None:
    module.plain.rate = 9
    module.plain.rows.append(2)
    module.plain.__class__, module.plain.__dict__ = Other, {"rate": 3}


def _slots(module: Any) -> None:
    module.slots.__class__ = OtherSlots
    module.slots.rate = 5


def _module(module: Any) -> None:
    module.__class__, module.__dict__ = OtherModule, {"count": 1}


_STEPS: dict[Callable[[Any], None], list[str]] = {
    _dict: ["Module.plain.rate", "Module.plain.rows", "Module.plain.more"],
    _equal_dict: [],
    _class: ["Module.plain"],
    _both: ["Module.plain", "Module.plain.rate", "Module.plain.rows", "Module.plain.rows[1]"],
    _slots: ["Module.slots", "Module.slots.rate"],
    _module: ["Module", *(f"Module.{name}" for name in ("count", "odd", "plain", "slots"))],
}


def _state(module: Any) -> list[object]:
    parts = (module, module.plain)
    return [
        *((type(part), id(vars(part)), dict(vars(part))) for part in parts),
        (type(module.slots), module.slots.rate, [*module.plain.rows]),
    ]


@pytest.mark.parametrize(("step", "paths"), _STEPS.items())
def test_it_is_seen_and_put_back(step: Callable[[Any], None], paths: list[str]) -> None:
    module = Module()
    before = _state(module)
    snapshot = ObjectSnapshot([module], lambda value: is_of(value, np.ndarray))
    assert snapshot.changes() == []
    step(module)
    assert sorted({change.path for change in snapshot.changes()}) == sorted(paths)
    again = snapshot.again([module])
    assert again.changes() == []
    assert snapshot.restore() == []
    assert _state(module) == before
    assert snapshot.changes() == []


def test_tensors_in_another_dict_are_found() -> None:
    module = Module()
    snapshot = ObjectSnapshot([module], lambda value: is_of(value, np.ndarray))
    module.plain.__dict__ = {"rate": (tensor := np.zeros(2))}
    (found,) = snapshot.new_tensors([change.value for change in snapshot.changes()])
    assert found is tensor
