"""Modules that keep state of Python from call to call: it is told, put back, or refused by name."""

from __future__ import annotations

import array
import builtins
import collections
import contextvars
import dataclasses
import enum
import fractions
import functools
import io
import itertools
import logging
import os
import queue
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from repeated_calls import Keeping, X, trains_as_in_torch
from torch.utils.data import TensorDataset

import sambac

TOLD = r"changes values that every run of the program finds as they were before: "


class Pair(NamedTuple):
    count: int


@dataclasses.dataclass(frozen=True)
class Frozen:
    count: int


class Slotted:
    """Its attribute has another name than in the code."""

    __slots__ = ("__count",)

    def __init__(self) -> None:
        self.__count = 0

    def add(self) -> None:
        self.__count += 1


class Counting(dict[str, int]):
    """A dict with an attribute."""

    count = 0


class Turn(enum.Enum):
    LEFT = 0
    RIGHT = 1


def numbers() -> Iterator[int]:
    count = 0
    while True:
        yield count
        count += 1


def added(m: Keeping, _y: torch.Tensor) -> None:
    m.state[0] += 1


def advanced(m: Keeping, _y: torch.Tensor) -> None:
    next(m.state)


def set_anew(make: Callable[[Any], object]) -> Callable[[Keeping, torch.Tensor], None]:
    def step(m: Keeping, _y: torch.Tensor) -> None:
        m.state = make(m.state)

    return step


def in_a_module(m: Keeping, _y: torch.Tensor) -> None:
    m.state.count = getattr(m.state, "count", 0) + 1


# What it is -> its state, what a call does to it, and what shows the state to compare.
PUT_BACK: dict[str, tuple[Callable[[], object], Any, Callable[[Any], object]]] = {
    "bytearray": (lambda: bytearray(b"\0"), added, bytes),
    "array": (lambda: array.array("i", [0]), added, list),
    "memoryview": (lambda: memoryview(bytearray(2)), added, bytes),
    "grown": (bytearray, lambda m, _: m.state.append(1), bytes),
    "large array": (lambda: np.zeros(1 << 18), added, np.sum),
    "array of objects": (lambda: np.array([0], dtype=object), added, list),
    "queue": (queue.Queue, lambda m, _: m.state.put(1), lambda one: one.unfinished_tasks),
    "mapping": (lambda: collections.ChainMap({0: 0}), added, dict),
    "read-only view": (
        lambda: types.MappingProxyType({"a": [0]}),
        lambda m, _: m.state["a"].append(len(m.state["a"])),
        dict,
    ),
    "partial": (
        lambda: functools.partial(dict, a=0),
        lambda m, _: m.state.keywords.update(a=m.state.keywords["a"] + 1),
        lambda one: one(),
    ),
    "method": (lambda: [0].append, lambda m, _: m.state(1), lambda one: one.__self__),
    "slots": (Slotted, lambda m, _: m.state.add(), lambda one: one._Slotted__count),
    "attribute of a dict": (
        Counting,
        lambda m, _: setattr(m.state, "count", m.state.count + 1),
        lambda one: one.count,
    ),
    "hand-made module": (lambda: types.ModuleType("own"), in_a_module, dir),
    "named tuple": (lambda: Pair(0), set_anew(lambda one: Pair(one.count + 1)), tuple),
    "frozen": (
        lambda: Frozen(0),
        set_anew(lambda one: dataclasses.replace(one, count=one.count + 1)),
        dataclasses.astuple,
    ),
    "new list": (lambda: [0], set_anew(lambda one: [one[0] + 1]), list),
    "new partial": (
        lambda: functools.partial(int, 0),
        set_anew(lambda one: functools.partial(int, one() + 1)),
        lambda one: one(),
    ),
    "new fraction": (lambda: fractions.Fraction(0), set_anew(lambda one: one + 1), float),
    "number of numpy": (lambda: np.float32(0), set_anew(lambda one: one + np.float32(1)), float),
    "choice": (lambda: Turn.LEFT, set_anew(lambda one: Turn(1 - one.value)), repr),
    "order": (
        lambda: {1: 1, 2: 2, 3: 3},
        lambda m, _: m.state.update({next(iter(m.state)): m.state.pop(next(iter(m.state)))}),
        list,
    ),
}


@pytest.mark.parametrize("what", PUT_BACK)
def test_states_are_told_and_put_back(what: str) -> None:
    make, step, show = PUT_BACK[what]
    model = Keeping(make(), step)
    state = model.state
    with pytest.warns(UserWarning, match=TOLD + r"Keeping\.state"):
        sambac.compile(model, inputs=(X,))
    assert model.state is state or model.state == state
    assert repr(show(state)) == repr(show(make()))


GOING_ON: dict[str, tuple[Callable[[], object], Any]] = {
    "count": (itertools.count, advanced),
    "cycle": (lambda: itertools.cycle(range(9)), advanced),
    "of a list": (lambda: iter([0] * 99), advanced),
    "of two": (lambda: zip(range(99), range(99), strict=True), advanced),
    "of a range, by a function": (lambda: map(float, range(99)), advanced),
    "generator": (numbers, advanced),
    "expression": (lambda: (one for one in range(99)), advanced),
    "file": (lambda: io.BytesIO(b"a" * 99), lambda m, _: m.state.read(1)),
}


@pytest.mark.parametrize("what", GOING_ON)
def test_what_cannot_be_put_back_is_told(what: str) -> None:
    make, step = GOING_ON[what]
    with pytest.warns(UserWarning, match="which leaves|values that every run") as told:
        sambac.compile(Keeping(make(), step), inputs=(X,))
    changed, left = (str(one.message) for one in told)
    assert TOLD + "Keeping.state" in changed
    assert "compiling called forward, which leaves Keeping.state" in left


CALLS = contextvars.ContextVar("CALLS", default=0)
RESULT: contextvars.ContextVar[torch.Tensor] = contextvars.ContextVar("RESULT")
OWN = types.ModuleType("own")
SHELF: dict[str, object] = {"calls": 0}


def in_the_environment(_m: Keeping, _y: torch.Tensor) -> None:
    os.environ["CALLS"] = os.environ.get("CALLS", "") + "a"


def in_the_context(_m: Keeping, _y: torch.Tensor) -> None:
    CALLS.set(CALLS.get() + 1)


def in_a_variable(_m: Keeping, _y: torch.Tensor) -> None:
    SHELF["calls"] = int(str(SHELF["calls"])) + 1


ELSEWHERE = {
    in_the_environment: "os.environ.CALLS",
    in_the_context: "CALLS",
    in_a_variable: "SHELF",
}


@pytest.mark.parametrize("step", ELSEWHERE, ids=lambda step: step.__name__)
def test_states_elsewhere_are_told_and_put_back(
    step: Callable[[Keeping, torch.Tensor], None],
) -> None:
    with pytest.warns(UserWarning, match=TOLD + ELSEWHERE[step]):
        sambac.compile(Keeping(None, step), inputs=(X,))
    assert ("CALLS" in os.environ, CALLS.get(), SHELF["calls"]) == (False, 0, 0)


def in_an_array(m: Keeping, y: torch.Tensor) -> None:
    m.array[0] = y


def set_in_the_context(_m: Keeping, y: torch.Tensor) -> None:
    RESULT.set(y)


def in_an_own_module(_m: Keeping, y: torch.Tensor) -> None:
    OWN.result = y  # type: ignore[attr-defined]


def in_a_function(_m: Keeping, y: torch.Tensor) -> None:
    SHELF["function"] = lambda: y


def as_a_number(_m: Keeping, y: torch.Tensor) -> None:
    SHELF["number"] = y.mean().item()


@pytest.mark.parametrize(
    "step", [in_an_array, set_in_the_context, in_an_own_module, in_a_function, as_a_number]
)
@pytest.mark.filterwarnings("ignore:forward changes values .*SHELF.number")
def test_tensors_of_a_recording_are_taken_out(step: Any) -> None:
    model = Keeping(None, step)
    model.array = np.array([None], dtype=object)
    sambac.compile(model, inputs=(X,))
    assert model.array.tolist() == [None]
    assert RESULT.get(None) is None
    assert not hasattr(OWN, "result")
    assert SHELF.keys() == {"calls"}


@pytest.mark.filterwarnings("ignore:.* keeps .*queue:UserWarning", "ignore:forward changes values")
def test_a_queue_is_as_empty_as_before() -> None:
    model = Keeping(queue.Queue(), lambda m, y: m.state.put(y))
    sambac.compile(model, inputs=(X,))
    assert (model.state.qsize(), model.state.unfinished_tasks) == (0, 0)


class Log(logging.Handler):
    """Keeps messages with what they are about, as loggers of tests do."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def logged(_m: Keeping, y: torch.Tensor) -> None:
    logging.getLogger("states").warning("y is %s", y)


def logged_with_an_error(_m: Keeping, y: torch.Tensor) -> None:
    try:
        int(f"{y.shape}")
    except ValueError:
        logging.getLogger("states").warning("the slow way", exc_info=True)


@pytest.mark.parametrize("step", [logged, logged_with_an_error])
def test_messages_may_keep_tensors(step: Any) -> None:
    logger, log = logging.getLogger("states"), Log()
    logger.addHandler(log)
    try:
        trains_as_in_torch(Keeping(None, step))
    finally:
        logger.removeHandler(log)
    assert log.records


def pair(m: Keeping, y: torch.Tensor) -> None:
    m.state = (0, 0)
    for _ in range(2):
        m.state = (m.state[0] + y, m.state[1] + 1)
    y.mul_(m.state[1] * m.state[0].detach())


def test_numbers_may_become_tensors() -> None:
    trains_as_in_torch(Keeping((0, 0), pair))


def sized(m: Keeping, y: torch.Tensor) -> None:
    m.state, m.both = y.size(0), (y.size(0), 2 * y.size(0))


def test_open_sizes_that_stay_are_not_told() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch = {"x": {0: torch.export.Dim("batch", min=2, max=9)}}
        sambac.compile(Keeping(None, sized), inputs=(X,), dynamic_shapes=batch)


def received() -> Any:
    def receive() -> Iterator[object]:
        last = None
        while True:
            last = yield last  # type: ignore[misc]

    started = receive()
    next(started)
    return started


def in_the_language(_m: Keeping, y: torch.Tensor) -> None:
    builtins.kept = y  # type: ignore[attr-defined]


HELD: dict[str, tuple[Callable[[], object], Any]] = {
    r"builtins\.kept|a place that cannot be seen": (lambda: None, in_the_language),
    r"TensorDataset\.kept": (
        lambda: TensorDataset(X),
        lambda m, y: setattr(m.state, "kept", y),
    ),
    "a generator": (received, lambda m, y: m.state.send(y)),
    "a _queue.SimpleQueue|a list": (queue.SimpleQueue, lambda m, y: m.state.put(y)),
}


@pytest.mark.parametrize("place", HELD)
@pytest.mark.filterwarnings("ignore:compiling called forward", "ignore:forward changes values")
def test_tensors_that_cannot_be_taken_out_are_refused(place: str) -> None:
    make, step = HELD[place]
    try:
        with pytest.raises(sambac.CompileError, match=rf"Keeping keeps tensors in .*({place})"):
            sambac.compile(Keeping(make(), step), inputs=(X,))
    finally:
        vars(builtins).pop("kept", None)


class Same(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.contiguous() + 1


def test_inputs_that_a_recording_holds_are_looked_for_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[object] = []
    monkeypatch.setattr("gc.get_referrers", lambda *held: looked.append(held) or [])
    sambac.compile(Same(), inputs=(X,))
    assert not looked


def test_arrays_without_room_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pef.objects._ROOM", 1 << 10)
    model = Keeping(np.zeros(1 << 10), added)
    with pytest.warns(
        UserWarning, match=r"arrays Keeping\.state are too large .*writeable = False"
    ):
        sambac.compile(model, inputs=(X,))
    model.state.flags.writeable = False
    model.step = lambda m, y: None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sambac.compile(model, inputs=(X,))
