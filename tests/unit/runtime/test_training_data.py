"""Batches and cursors: which rows a step reads, and what does not fit."""

from __future__ import annotations

import numpy as np
import pytest
from bare_program import bare_program

import pef
from pef import dtypes
from sambarun import RunError
from sambarun.training.data import Batches, Cursor, converted


def program(**inputs: tuple[str, tuple[int, ...]]) -> pef.Program:
    """A program, as far as data see it, with inputs of a dtype and a shape."""
    symbols = tuple(
        pef.Symbol(name, pef.SymbolKind.INPUT, dtypes.BY_NAME[dtype].number, shape, "")
        for name, (dtype, shape) in inputs.items()
    )
    ports = tuple(pef.Port(symbol.name, index) for index, symbol in enumerate(symbols))
    return bare_program(symbols=symbols, graphs=(pef.NamedGraph("train", ports, (), 0, 1),))


def arrays(rows: int) -> dict[str, np.ndarray]:
    return {
        "x": np.arange(rows * 2, dtype=np.float32).reshape(rows, 2),
        "y": np.arange(rows, dtype=np.int64),
    }


@pytest.fixture
def pair() -> pef.Program:
    return program(x=("float32", (3, 2)), y=("int64", (3,)))


def labels(batches: Batches, cursor: Cursor, steps: int) -> tuple[list[list[int]], Cursor]:
    seen = []
    for _ in range(steps):
        (batch,), cursor = batches.take(cursor)
        np.testing.assert_array_equal(batch["x"][:, 0], batch["y"] * 2)
        seen.append(batch["y"].tolist())
    return seen, cursor


def test_rows_come_in_order_and_an_incomplete_batch_is_left_out(pair: pef.Program) -> None:
    batches = Batches(pair, arrays(8))
    assert (batches.rows, batches.size, batches.count) == (8, 3, 2)
    seen, cursor = labels(batches, Cursor(), 3)
    assert seen == [[0, 1, 2], [3, 4, 5], [0, 1, 2]]
    assert cursor == Cursor(step=3, epoch=1, batch=1)


def test_shuffled_rows_differ_from_epoch_to_epoch_and_repeat(pair: pef.Program) -> None:
    batches = Batches(pair, arrays(9))
    seen, _ = labels(batches, Cursor(shuffle=5), 6)
    first, second = ([row for batch in seen[i : i + 3] for row in batch] for i in (0, 3))
    assert sorted(first) == sorted(second) == list(range(9))
    assert len({tuple(first), tuple(second), tuple(range(9))}) == 3
    assert labels(Batches(pair, arrays(9)), Cursor(shuffle=5), 6)[0] == seen
    assert labels(batches, Cursor(shuffle=6), 6)[0] != seen


def test_a_cursor_continues_where_it_stood(pair: pef.Program) -> None:
    whole, _ = labels(Batches(pair, arrays(10)), Cursor(shuffle=1), 8)
    before, cursor = labels(Batches(pair, arrays(10)), Cursor(shuffle=1), 5)
    after, _ = labels(Batches(pair, arrays(10)), cursor, 3)
    assert before + after == whole


def test_a_step_may_read_several_batches_across_the_end_of_an_epoch(pair: pef.Program) -> None:
    batches = Batches(pair, arrays(9))
    taken, cursor = batches.take(Cursor(batch=2), 2)
    assert [batch["y"].tolist() for batch in taken] == [[6, 7, 8], [0, 1, 2]]
    assert cursor == Cursor(step=1, epoch=1, batch=1)


def test_a_cursor_beyond_the_data_begins_the_next_epoch(pair: pef.Program) -> None:
    (batch,), cursor = Batches(pair, arrays(6)).take(Cursor(epoch=4, batch=7))
    assert batch["y"].tolist() == [0, 1, 2]
    assert (cursor.epoch, cursor.batch) == (5, 1)


def test_all_rows_in_order_with_the_last_batch_filled_up(pair: pef.Program) -> None:
    seen = [(batch["y"].tolist(), rows) for batch, rows in Batches(pair, arrays(8)).in_order()]
    assert seen == [([0, 1, 2], 3), ([3, 4, 5], 3), ([6, 7, 7], 2)]
    few = Batches(pair, arrays(2), partial=True)
    assert [(batch["y"].tolist(), rows) for batch, rows in few.in_order()] == [([0, 1, 1], 2)]


def test_what_has_no_rows_is_given_with_each_batch() -> None:
    inputs = program(x=("float32", (2,)), graph=("float32", (4, 4)), rate=("float32", ()))
    given = {"x": np.arange(6, dtype=np.float32), "graph": np.eye(4, dtype=np.float32)}
    batches = Batches(inputs, {**given, "rate": np.float32(0.5)})
    (first, second), _ = batches.take(Cursor(), 2)
    assert second["x"].tolist() == [2, 3]
    assert first["graph"].shape == second["graph"].shape == (4, 4)
    assert second["rate"] == np.float32(0.5)


def test_arrays_of_one_batch_are_one_batch() -> None:
    inputs = program(x=("float32", (2,)), graph=("float32", (4, 4)))
    given = {"x": np.ones(2, np.float32), "graph": np.eye(4, dtype=np.float32)}
    batches = Batches(inputs, given)
    assert batches.count == 1
    assert batches.take(Cursor())[1] == Cursor(step=1, epoch=1)


def test_elements_are_converted_and_it_says_so(pair: pef.Program) -> None:
    given = {"x": np.ones((3, 2), np.float64), "y": np.ones(3, np.int32)}
    batches = Batches(pair, given)
    (batch,), _ = batches.take(Cursor())
    assert (batch["x"].dtype, batch["y"].dtype) == (np.float32, np.int64)
    assert batches.notes == [
        "x: float64 is converted to float32.",
        "y: int32 is converted to int64.",
    ]
    assert not Batches(pair, arrays(3)).notes


def test_everything_wrong_is_said_at_once(pair: pef.Program) -> None:
    with pytest.raises(RunError) as error:
        Batches(pair, {"X": np.ones((5, 2)), "y": np.ones(5)})
    assert str(error.value).splitlines() == [
        "Array 'x' is missing (did you mean 'X'?): float32[N, 2] was expected. The data hold X, y.",
        "Array 'y' is float64; int64 was expected.",
    ]
    with pytest.raises(RunError) as error:
        Batches(pair, {"x": np.ones((5, 4), np.float32), "y": np.ones((), np.int64)})
    assert str(error.value).splitlines() == [
        "Array 'x' has shape [5, 4]; [N, 2] was expected.",
        "Array 'y' has shape []; [N] was expected.",
    ]


def test_rows_that_do_not_match_are_refused(pair: pef.Program) -> None:
    given = {"x": arrays(8)["x"], "y": arrays(7)["y"]}
    with pytest.raises(RunError, match=r"'x' 8 \(3 a step\), 'y' 7 \(3 a step\)\.$"):
        Batches(pair, given)
    # Labels for a single batch beside more data are a mistake, not the same labels every time.
    with pytest.raises(RunError, match="differ in their number of rows"):
        Batches(pair, {"x": arrays(8)["x"], "y": arrays(3)["y"]})


def test_too_few_rows_for_a_step(pair: pef.Program) -> None:
    with pytest.raises(RunError, match="2 rows, and a step takes 3: give more"):
        Batches(pair, arrays(2))


@pytest.mark.parametrize(
    ("array", "dtype", "expected"),
    [
        (np.array([1.5, np.inf]), "float32", [1.5, np.inf]),
        (np.array([0, 255], np.uint8), "float32", [0, 255]),
        (np.array([True]), "int64", [1]),
        (np.array([3], np.int64), "uint8", [3]),
        (np.array([1.0], ">f4"), "float32", [1]),
    ],
)
def test_conversions(array: np.ndarray, dtype: str, expected: list[float]) -> None:
    kind = dtypes.BY_NAME[dtype]
    result = converted(array, kind.number)
    assert result.dtype == dtypes.numpy_dtype(kind.number)
    assert result.tolist() == expected


@pytest.mark.parametrize(
    ("array", "dtype", "message"),
    [
        (np.array([1.5]), "int64", "float64; int64 was expected"),
        (np.array([1e300]), "float32", "float64 and holds 1e+300, which is no float32"),
        (np.array([300], np.int64), "uint8", "int64 and holds 300, which is no uint8"),
        (np.array([-1], np.int64), "uint64", "int64 and holds -1, which is no uint64"),
        (np.array([2**24 + 1]), "float32", "int64 and holds 16777217, which is no float32"),
        (np.array([2**63 - 1]), "float64", "int64 and holds 9223372036854775807, which is no"),
        (np.array([1 + 1j]), "float32", "complex128; float32 was expected"),
        (np.array(["a"]), "int64", "<U1; int64 was expected"),
    ],
)
def test_conversions_that_would_lose_something(array: np.ndarray, dtype: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("+", r"\+")):
        converted(array, dtypes.BY_NAME[dtype].number)
