"""Evaluation over a data set: averages, results by row, accuracy where it can be known."""

from __future__ import annotations

import numpy as np
import pytest
from bare_program import bare_program

import pef
from pef import dtypes
from sambarun import Selection
from sambarun.evaluation import Classification, classification, evaluate
from sambarun.training.data import Batches

Ports = dict[str, tuple[str, tuple[int, ...]]]


def program(inputs: Ports, outputs: Ports) -> pef.Program:
    """A program, as far as evaluation sees it."""
    symbols = tuple(
        pef.Symbol(name, pef.SymbolKind.INPUT, dtypes.BY_NAME[dtype].number, shape, "")
        for name, (dtype, shape) in (inputs | outputs).items()
    )
    ports = [pef.Port(symbol.name, index) for index, symbol in enumerate(symbols)]
    count = len(inputs)
    graph = pef.NamedGraph(
        "eval", tuple(ports[:count]), tuple(ports[count:]), 0, 1, role=pef.GraphRole.EVAL
    )
    return bare_program(symbols=symbols, graphs=(graph,))


class Classifier:
    """Gives x itself as logits [2, 3], and as the loss the mean of y."""

    program = program(
        {"x": ("float32", (2, 3)), "y": ("int64", (2,))},
        {"loss": ("float32", ()), "logits": ("float32", (2, 3))},
    )

    def run(self, inputs: dict[str, np.ndarray], selection: Selection) -> dict[str, np.ndarray]:
        assert selection == Selection("FWD")
        return {"loss": np.float32(inputs["y"].mean()), "logits": inputs["x"].copy()}


def data(classes: list[int], labels: list[int]) -> dict[str, np.ndarray]:
    return {"x": np.eye(3, dtype=np.float32)[classes], "y": np.array(labels)}


def evaluated(arrays: dict[str, np.ndarray], *, keep: bool = False):
    machine = Classifier()
    batches = Batches(machine.program, arrays, "eval", partial=True)
    return evaluate(machine, batches, keep=keep)


def test_averages_are_over_full_batches_and_accuracy_over_all_rows() -> None:
    found = evaluated(data([0, 1, 2, 0, 1], [0, 1, 2, 2, 0]))
    assert (found.rows, found.averaged) == (5, 4)
    assert found.means == {"loss": 1.25}
    assert (found.right, found.judged) == (3, 5)
    assert found.outputs == {}


def test_results_have_a_row_for_each_row() -> None:
    arrays = data([0, 1, 2], [0, 0, 0])
    found = evaluated(arrays, keep=True)
    assert list(found.outputs) == ["logits"]
    np.testing.assert_array_equal(found.outputs["logits"], arrays["x"])


def test_labels_that_are_no_class_are_not_judged() -> None:
    found = evaluated(data([0, 1, 2, 2], [0, -100, 2, 7]))
    assert (found.right, found.judged) == (2, 2)


def test_less_than_a_batch_has_no_averages() -> None:
    found = evaluated(data([1], [1]))
    assert (found.rows, found.averaged, found.means) == (1, 0, {})
    assert (found.right, found.judged) == (1, 1)


@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"),
    [
        ({"t": ("int32", (4,))}, {"s": ("float16", (4, 5))}, ("s", "t", 1, 5)),
        ({"t": ("int64", (4, 8, 8))}, {"s": ("float32", (4, 5, 8, 8))}, ("s", "t", 1, 5)),
        ({"t": ("int64", (4, 6))}, {"s": ("float32", (4, 6, 5))}, ("s", "t", 2, 5)),
        ({"t": ("int64", (4, 6))}, {"s": ("float32", (4, 5, 6))}, ("s", "t", 1, 5)),
        (
            {"a": ("int64", (4,)), "labels": ("int64", (4,))},
            {"s": ("float32", (4, 5))},
            ("s", "labels", 1, 5),
        ),
        ({"a": ("int64", (4,)), "b": ("int64", (4,))}, {"s": ("float32", (4, 5))}, None),
        ({"t": ("float32", (4,))}, {"s": ("float32", (4, 5))}, None),
        ({"t": ("int64", (4,))}, {"s": ("float32", (4, 1))}, None),
        ({"t": ("int64", (4,))}, {"s": ("int64", (4, 5))}, None),
        ({"t": ("int64", (5,))}, {"s": ("float32", (4, 5))}, None),
    ],
)
def test_what_is_judged_by_what(
    inputs: Ports, outputs: Ports, expected: tuple[str, str, int, int] | None
) -> None:
    found = classification(program(inputs, outputs))
    assert found == (Classification(*expected) if expected else None)


def test_a_program_that_does_not_evaluate_is_not_judged() -> None:
    assert classification(bare_program(symbols=(), graphs=())) is None


@pytest.mark.parametrize(
    ("labels", "notes"),
    [
        ([0, 2, -100], []),
        ([0, 3, 1], ["'y' holds 0 to 3 (the classes are 0 to 2)."]),
        ([0, -1, -100], ["'y' holds -1 to 0 (the classes are 0 to 2)."]),
        ([], []),
    ],
)
def test_odd_labels_are_noted(labels: list[int], notes: list[str]) -> None:
    arrays = {"x": np.zeros((len(labels), 3), np.float32), "y": np.array(labels, np.int64)}
    assert Batches(Classifier.program, arrays, "eval", partial=True).notes == notes
