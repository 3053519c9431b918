"""What an annotation says of a value: never that one is wrong which may be right."""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import pytest

from pef.misfits import fits, misfit


class _Shaped(Protocol):
    shape: tuple[int, ...]


@pytest.mark.parametrize(
    ("hint", "right", "wrong"),
    [
        (int, [0], ["0", None, 1.5, True]),
        (float, [0, 1.5], ["0", None, True]),
        (bool, [True], [1, None]),
        (str, ["a"], [b"a", 1]),
        (int | None, [None, 1], ["1"]),
        (Sequence[int], [[], [1], (1,)], ["ab", [None], 3]),
        (tuple[int, ...], [(), (1, 2)], [[1], (None,)]),
        (Mapping[str, int], [{}, {"a": 1}], [[], {1: 1}, {"a": "b"}]),
        (queue.Queue[int], [queue.Queue()], [3]),
        (Sequence[str] | Mapping[str, str], [["a"], {"a": "b"}], ["a", {"a": 1}]),
        (Callable[[int], int], [len], [3]),
        (type[Exception], [ValueError], [3]),
        (Any, [1, None], []),
        (object, [1, None], []),
        (_Shaped, [1], []),
    ],
)
def test_what_is_of_a_type(hint: object, right: list, wrong: list) -> None:
    assert all(fits(value, hint) for value in right)
    assert not any(fits(value, hint) for value in wrong)


def _takes(a: int, *more: float, b: Sequence[str] = (), **rest: int) -> None:
    """Take arguments of all kinds."""


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ((1, 2.5), {"b": ["c"]}, None),
        ((None,), {}, "a is None; int was expected"),
        ((1, 2, "x"), {}, "more is 'x'; float was expected"),
        ((1,), {"b": "c"}, r"b is 'c'; Sequence[str] was expected"),
        ((1,), {"c": 2, "d": 3}, None),
        ((1,), {"c": 2, "d": "x"}, "d is 'x'; int was expected"),
        ((), {}, None),
    ],
)
def test_the_first_argument_of_another_type(args, kwargs, says) -> None:
    assert misfit(_takes, args, kwargs) == says
