"""Gradients of operators that read or write at given indices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from gradient_check import Case, check_against_torch, check_finite_differences

from sambac.autodiff import differentiate
from sambac.passes.legalize.infer_shapes import infer

torch = pytest.importorskip("torch")
rng = np.random.default_rng(5)


def normal(*shape: int) -> np.ndarray:
    return np.asarray(rng.normal(size=shape))


def ints(*items: Any) -> np.ndarray:
    return np.array(items, np.int64)


def case(
    op: str, label: str, inputs: tuple[Any, ...], formula: Callable[..., Any], **attributes: Any
) -> Case:
    return Case(op, inputs, formula, attributes, label=label)


def scatter_elements(label: str, reduction: str, x: np.ndarray, updates: np.ndarray) -> Case:
    """Along the second axis, places of some rows repeated."""
    index = ints([0, 2, 2], [3, -1, 1])
    names = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}

    def formula(x, index, updates):
        places = torch.where(index < 0, index + 4, index)
        if reduction == "none":
            return x.scatter(1, places, updates)
        return x.scatter_reduce(1, places, updates, names[reduction], include_self=True)

    inputs = (x, ints([0, 2, 1], [3, 0, 1]) if reduction == "none" else index, updates)
    return case(
        "ScatterElements", f"{reduction}{label}", inputs, formula, axis=1, reduction=reduction
    )


def scatter_nd(reduction: str) -> Case:
    """Rows of the last axis, one of them twice unless rows are replaced."""
    index = ints([[0, 2], [1, -1]], [[0, 0], [1, 1]])
    if reduction != "none":
        index[1, 1] = (0, 2)
    names = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}

    def formula(x, index, updates):
        flat = x.reshape(6, 4)
        rows = (index[..., 0] * 3 + index[..., 1] % 3).reshape(4, 1).expand(4, 4)
        if reduction == "none":
            made = flat.scatter(0, rows, updates.reshape(4, 4))
        else:
            made = flat.scatter_reduce(0, rows, updates.reshape(4, 4), names[reduction])
        return made.reshape(2, 3, 4)

    inputs = (normal(2, 3, 4), index, normal(2, 2, 4))
    return case("ScatterND", reduction, inputs, formula, reduction=reduction)


def one_hot(values, index, depth, axis):
    hot = torch.nn.functional.one_hot(index % depth, depth).movedim(-1, axis)
    return values[0] + (values[1] - values[0]) * hot


GATHERS = [
    case("Gather", "rows", (normal(6, 3), ints([1, 5], [1, 0])), lambda x, i: x[i]),
    case("Gather", "negative", (normal(6, 3), ints(-1, 5, -6, 2)), lambda x, i: x[i]),
    case("Gather", "int32", (normal(6, 3), ints(-1, 5).astype(np.int32)), lambda x, i: x[i]),
    case("Gather", "last", (normal(2, 3, 4), ints(3, 3, 0)), lambda x, i: x[..., i], axis=-1),
    case("Gather", "middle", (normal(2, 3, 4), ints([2, 2], [0, 1])), lambda x, i: x[:, i], axis=1),
    case("Gather", "one", (normal(2, 3, 4), np.array(1)), lambda x, i: x[:, 1], axis=1),
    case("Gather", "run", (normal(2, 5), ints(1, 2, -2)), lambda x, i: x[:, 1:4], axis=1),
    case("Gather", "permuted", (normal(2, 4), ints(2, 0, 3, 1)), lambda x, i: x[:, i], axis=1),
    case("Gather", "chosen", (normal(2, 4), ints(2, 0)), lambda x, i: x[:, i], axis=1),
    case("Gather", "vector", (normal(5), ints(1, 1, 3)), lambda x, i: x[i]),
    case(
        "GatherElements", "", (normal(2, 4), ints([0, 0, -1], [3, 1, 3])),
        lambda x, i: x.gather(1, i % 4), axis=1,
    ),
    replace(
        case(
            "GatherElements", "fewer-rows", (normal(3, 4), ints([0, 0, -1], [3, 1, 3])),
            lambda x, i: x[:2].gather(1, i % 4), axis=1,
        ),
        without_finite_differences="the reference wants as many rows",
    ),
    case(
        "GatherND", "elements", (normal(2, 3), ints([0, 1], [1, -1], [0, 1])),
        lambda x, i: x[*i.T],
    ),
    case("GatherND", "rows", (normal(2, 3), ints([[1]], [[1]])), lambda x, i: x[i[..., 0]]),
    case(
        "GatherND", "batch", (normal(2, 3, 4), ints([[2], [2]], [[0], [-1]])),
        lambda x, i: torch.stack([x[0, [2, 2]], x[1, [0, -1]]]), batch_dims=1,
    ),
    case(
        "GatherND", "batch-deep", (normal(2, 3, 4), ints([[2, 1], [2, 1]], [[0, 3], [-1, 0]])),
        lambda x, i: torch.stack([x[0, [2, 2], [1, 1]], x[1, [0, -1], [3, 0]]]), batch_dims=1,
    ),
    Case(
        "GatherND", (normal(2, 3), ints([0, 1], [1, 2])), lambda x, i: x[*i.T],
        domain="com.microsoft", label="contrib",
        without_finite_differences="the reference lacks it",
    ),
    case(
        "OneHot", "", (ints(1, 0, -1), np.array(4), normal(2)),
        lambda i, d, v: one_hot(v, i, 4, -1),
    ),
    case(
        "OneHot", "axis", (ints([1, 0, 3]), np.array(4), normal(2)),
        lambda i, d, v: one_hot(v, i, 4, 1), axis=1,
    ),
]  # fmt: skip

SCATTERS = [
    *(
        scatter_elements("", reduction, normal(2, 4), normal(2, 3))
        for reduction in ("none", "add", "mul", "max", "min")
    ),
    replace(
        scatter_elements("-ties", "max", np.ones((2, 4)), np.ones((2, 3))),
        without_finite_differences="a kink",
    ),
    scatter_elements("-one-zero", "mul", normal(2, 4), np.array([[2.0, 0, 3], [0, 1, 2]])),
    scatter_elements("-two-zeros", "mul", normal(2, 4), np.array([[2.0, 0, 0], [0, 0, 2]])),
    *(scatter_nd(reduction) for reduction in ("none", "add", "mul", "max", "min")),
]
CASES = [*GATHERS, *SCATTERS]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_finite_differences(case: Case):
    check_finite_differences(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_torch(case: Case):
    check_against_torch(case)


@dataclass(frozen=True)
class Lookup:
    """A read of `width` elements in each of `lines` places of a table of `count`, at run time."""

    count: int
    lines: int
    width: int

    def model(self, index_type: ir.DataType = ir.DataType.INT64) -> bytes:
        """Return a graph from index and dy to the gradient of the table."""
        table = ir.val("table", ir.DataType.FLOAT, (self.count, self.width))
        index = ir.val("index", index_type, (self.lines,))
        y = ir.val("y")
        node = ir.node("Gather", [table, index], outputs=[y], name="lookup")
        graph = ir.Graph([table, index], [y], nodes=[node], opset_imports={"": 23}, name="lookup")
        model = ir.Model(graph, ir_version=10)
        infer(model)
        dy = ir.val("dy", y.dtype, y.shape)
        graph.inputs.append(dy)
        (gradient,) = differentiate(model, {y: dy}, [table]).values()
        gradient.name = "dtable"
        graph.outputs[:] = [gradient]
        graph.inputs.remove(table)
        graph.remove(node)
        return ir.serde.serialize_model(model).SerializeToString()

    def expected(self, index: np.ndarray, dy: np.ndarray) -> np.ndarray:
        """Return the sums in float64."""
        sums = np.zeros((self.count, self.width))
        np.add.at(sums, index, dy.astype(np.float64))
        return sums

    def dy(self) -> np.ndarray:
        return np.random.default_rng(8).normal(size=(self.lines, self.width)).astype(np.float32)


def session(model: bytes, threads: int = 1) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


LOOKUPS = {
    "few elements": Lookup(100, 20, 3),
    "tiny table": Lookup(50, 300, 40),
    "blocks": Lookup(500, 256, 64),
    "odd number of rows": Lookup(200, 333, 40),
    "blocks of blocks": Lookup(300, 2050, 20),
    "narrow": Lookup(300, 2050, 5),
    "wide": Lookup(70, 3, 3000),
    "one row": Lookup(70, 1, 9000),
}  # fmt: skip


@pytest.mark.parametrize("spread", ["random", "one", "two", "neighbours", "rising", "falling"])
@pytest.mark.parametrize("lookup", LOOKUPS.values(), ids=LOOKUPS)
def test_rows_are_summed_however_often_an_index_repeats(lookup: Lookup, spread: str):
    lines, count = lookup.lines, lookup.count
    index = {
        "random": np.random.default_rng(9).integers(-count, count, lines),
        "one": np.full(lines, count - 1),
        "two": np.arange(lines) % 2 * (count - 1),
        "neighbours": np.arange(lines) // 7 % count,
        "rising": np.arange(lines) % count,
        "falling": -1 - np.arange(lines) % count,
    }[spread]
    dy = lookup.dy()
    (actual,) = session(lookup.model()).run(None, {"index": index, "dy": dy})
    expected = lookup.expected(index, dy)
    assert np.abs(actual - expected).max() <= 2e-6 * np.abs(expected).max()


def test_indices_may_be_int32():
    lookup = Lookup(50, 300, 40)
    index, dy = np.arange(-150, 150, dtype=np.int32) % 50, lookup.dy()
    (actual,) = session(lookup.model(ir.DataType.INT32)).run(None, {"index": index, "dy": dy})
    np.testing.assert_allclose(actual, lookup.expected(index, dy), atol=1e-5)


RACES = {
    "sorted blocks": Lookup(1000, 2048, 256),
    "one-hot": Lookup(64, 2048, 128),
    "elements": Lookup(1000, 2048, 4),
}


def values_of_runs(lookup: Lookup, runs: int) -> set[bytes]:
    """Return the different results of so many runs on two threads, most indices being equal."""
    index, dy = np.random.default_rng(7).integers(0, lookup.count, lookup.lines), lookup.dy()
    index[np.arange(lookup.lines) % 8 > 0] = 3
    two = session(lookup.model(), threads=2)
    results = {two.run(None, {"index": index, "dy": dy})[0].tobytes() for _ in range(runs)}
    actual = np.frombuffer(min(results), np.float32).reshape(lookup.count, lookup.width)
    np.testing.assert_allclose(actual, lookup.expected(index, dy), atol=1e-3)
    return results


@pytest.mark.parametrize("lookup", RACES.values(), ids=RACES)
def test_threads_do_not_race(lookup: Lookup):
    assert len(values_of_runs(lookup, 100)) == 1


@pytest.mark.long
@pytest.mark.parametrize("lookup", RACES.values(), ids=RACES)
def test_a_thousand_runs_give_one_value(lookup: Lookup):
    assert len(values_of_runs(lookup, 1000)) == 1
