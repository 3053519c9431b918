"""Errors about arguments suggest those that may be meant; nothing else of a function changes."""

from __future__ import annotations

import enum
import inspect
import pickle
import types

import pytest

import pybuda
import sambac
from pef.arguments import bound, passing_on, tell, told


def scaled(value: float, factor: float = 2.0, **more: float) -> float:
    return value * factor + sum(more.values())


def shifted(value: float, *, offset: float = 1.0) -> float:
    return value + offset


def test_calls_that_fit_are_passed_on() -> None:
    assert told(shifted)(2.0, offset=3.0) == 5.0
    assert told(scaled)(2.0, factor=4.0, other=1.0) == 9.0
    assert inspect.signature(told(shifted)) == inspect.signature(shifted)


def test_a_keyword_is_suggested() -> None:
    says = r"^shifted: there is no argument 'ofset' \(did you mean 'offset'\?\); it takes value, "
    with pytest.raises(TypeError, match=says):
        told(shifted)(2.0, ofset=3.0)  # type: ignore[call-arg]  # which is the mistake


def test_keywords_that_are_passed_on_are_those_of_the_function_that_was_called() -> None:
    @told
    @passing_on(shifted)
    def doubled(value: float, **more: float) -> float:
        return 2 * shifted(value, **more)

    assert doubled(1.0, offset=3.0) == 8.0
    assert [*inspect.signature(doubled).parameters] == ["value", "offset"]
    with pytest.raises(TypeError, match=r"doubled: there is no argument 'ofset' \(did you mean"):
        doubled(1.0, ofset=3.0)


def test_errors_of_the_function_itself_stay() -> None:
    @told
    def failing(value: float) -> float:
        raise TypeError(f"{value} is strange")

    with pytest.raises(TypeError, match=r"^1 is strange$"):
        failing(value=1)


def test_what_is_missing_is_told() -> None:
    with pytest.raises(TypeError, match=r"^f: missing a required argument: 'value'; it takes val"):
        bound("f", inspect.signature(shifted), (), {})
    with pytest.raises(TypeError, match=r"^f: .*; it takes none$"):
        bound("f", inspect.Signature(), (1,), {})


def test_a_module_is_told_with_its_classes() -> None:
    class Shape:
        def __init__(self, size: int = 1) -> None:
            self.size = size

        @classmethod
        def square(cls, side: int) -> Shape:
            return cls(side * side)

        def _hidden(self, word: int) -> int:
            return word

    class Color(enum.Enum):
        RED = 1

    found = types.ModuleType("found")
    for each in (Shape, Color, shifted):
        each.__module__ = "package.part"
    Shape.__init__.__module__ = Shape.square.__func__.__module__ = "package.part"  # type: ignore[attr-defined]
    vars(found).update(Shape=Shape, Color=Color, shifted=shifted, other=scaled)
    try:
        tell(found, "package")
        tell(found, "package")  # once is enough
        assert found.other is scaled
        assert found.shifted.__wrapped__ is shifted
        assert Color(1) is Color.RED
        assert Shape.square(side=3).size == 9
        for call in (
            lambda: Shape(siz=2),
            lambda: Shape.square(sid=3),
            lambda: found.shifted(valu=1),
        ):
            with pytest.raises(TypeError, match="did you mean"):
                call()
        with pytest.raises(TypeError, match="unexpected keyword"):
            Shape()._hidden(wrd=1)  # type: ignore[call-arg]  # which is the mistake
    finally:
        shifted.__module__ = __name__


def test_all_keywords_that_there_are_not_are_told_in_order() -> None:
    says = r"^shifted: there is no argument 'zz', 'ofset' \(did you mean 'offset'\?\); it takes val"
    with pytest.raises(TypeError, match=says):
        bound("shifted", inspect.signature(shifted), (1,), {"zz": 1, "ofset": 2})


def test_functions_that_two_modules_have_are_told_once() -> None:
    for function in (pybuda.set_epoch_break, pybuda.set_chip_break, sambac.compile):
        assert pickle.loads(pickle.dumps(function)) is function
    assert pybuda.set_chip_break is pybuda.config.set_chip_break
