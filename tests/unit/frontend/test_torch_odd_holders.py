"""Objects of all kinds that hold tensors: inputs and results, or refused for what they are."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from types import SimpleNamespace

import pytest
from held_objects import Pair, Two, X, run_program
from near import assert_near, exactly
from torch import Tensor, nn
from torch_runs import Lambda

import sambac
from sambac.errors import CompileError


class Slots:
    """An object without a dict of attributes, and with a slot that stays empty."""

    __slots__ = ("_empty", "x")

    def __init__(self, x: Tensor) -> None:
        self.x = x


class Both(Slots):
    """An object with a slot and a dict of attributes."""

    def __init__(self, x: Tensor) -> None:
        super().__init__(x + 1)
        self.y = x - 1


@dataclass(frozen=True, slots=True)
class Fixed:
    """An object whose attributes cannot be set, of which one is computed."""

    x: Tensor
    more: Tensor = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "more", 2 * self.x)


class Asking:
    """An object whose class has code for whatever is done to it; `x` is in a dict."""

    def __init__(self, x: Tensor) -> None:
        vars(self)["held"] = {"x": x}

    def __getattr__(self, name: str) -> object:
        try:
            return vars(self)["held"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: object) -> None:
        raise RuntimeError

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __hash__(self) -> int:
        raise RuntimeError

    def __bool__(self) -> bool:
        raise RuntimeError

    def __len__(self) -> int:
        return 0


_LAYER = nn.Linear(2, 2)


class Empty:
    """An object that holds no tensor so far."""

    def __init__(self) -> None:
        self.count = 1


def _beside(x: Tensor) -> SimpleNamespace:
    """Return an object with what cannot be copied, or is of a class without tensors."""
    dead = weakref.proxy(Empty())
    others = {"lock": Lock(), "rows": iter([1]), "dead": dead, "layer": _LAYER}
    return SimpleNamespace(x=x, layers=[Empty(), x + 1], around=_around(), **others)


def _around() -> Empty:
    """Return an object in many circles, each of which would be a way through all of them."""
    ones = [Empty() for _ in range(20)]
    for one in ones:
        one.others = ones  # type: ignore[attr-defined]
    return ones[0]


def _flat(value: object) -> list[Tensor]:
    """Return the tensors in an object, slots first."""
    kind = type(value)  # which what stands for another object that is gone has, too
    if issubclass(kind, Tensor):
        return [value]  # type: ignore[list-item]
    if issubclass(kind, (list, dict)):
        parts = value.values() if isinstance(value, dict) else value
        return [one for part in parts for one in _flat(part)]  # type: ignore[attr-defined]
    names = [name for name in ("more", "x") if name in getattr(kind, "__slots__", ())]
    known = issubclass(kind, (Both, Asking, SimpleNamespace, Pair))
    slots = [getattr(value, name) for name in names]
    return _flat([*slots, *(vars(value).values() if known else ())])


@pytest.mark.parametrize("make", [Slots, Both, Fixed, Asking, _beside, lambda x: Pair(x, Empty())])
def test_objects_of_all_kinds_are_inputs_and_results(make: Callable[[Tensor], object]) -> None:
    def forward(x: Tensor, one: object) -> object:
        value = one.first if isinstance(one, Pair) else one.x  # type: ignore[attr-defined]
        return [x * value, one, make(value + x)]

    program = sambac.compile(Two(forward), inputs=(X, make(X)))
    results = run_program(program, X, *_flat(make(X)))
    wanted = _flat(forward(exactly(X), make(exactly(X))))
    for found, tensor in zip(results.values(), wanted, strict=True):
        assert_near(found, tensor.numpy())


def _round() -> SimpleNamespace:
    one = SimpleNamespace(x=X)
    one.parts = [SimpleNamespace(whole=one, x=X)]
    return one


def _of_c(kind: type, *content: object) -> Callable[[Tensor], object]:
    """Return what makes an object with a tensor, of a class whose C code has a state of its own."""
    own = type("Own", (kind,), {})

    def made(x: Tensor) -> object:
        one = own(*content)
        one.x = x
        return one

    return made


@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: {x},
        lambda x: (x, "text", {x}),
        _of_c(deque, [3]),
        _of_c(dict),
        _of_c(OSError),
    ],
)
def test_what_else_is_returned_is_refused(wrap: Callable[[Tensor], object]) -> None:
    with pytest.raises(CompileError, match="returns something else than tensors, and collections"):
        sambac.compile(Lambda(lambda x: wrap(2 * x)), inputs=(X,))


def test_objects_that_hold_themselves_are_refused() -> None:
    says = "of the class SimpleNamespace holds tensors and itself; give or return the tensors"
    with pytest.raises(CompileError, match=says):
        sambac.compile(Lambda(lambda one: one.x * 2), inputs=(_round(),))

    def made(x: Tensor) -> object:
        one = _round()
        one.x = x
        return one

    with pytest.raises(CompileError, match=says):
        sambac.compile(Lambda(made), inputs=(X,))
