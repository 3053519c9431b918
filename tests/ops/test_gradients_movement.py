"""Gradients of operators that move elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from gradient_check import Case, check_against_torch, check_finite_differences

from sambac.autodiff import differentiate
from sambac.passes.legalize.infer_shapes import infer

torch = pytest.importorskip("torch")
rng = np.random.default_rng(4)


def normal(*shape: int) -> np.ndarray:
    return np.asarray(rng.normal(size=shape))


def ints(*items: int) -> np.ndarray:
    return np.array(items, np.int64)


def case(
    op: str, label: str, inputs: tuple[Any, ...], formula: Callable[..., Any], **attributes: Any
) -> Case:
    return Case(op, inputs, formula, attributes, label=label)


def slices(label: str, numpy_way: tuple[slice, ...], *parameters: np.ndarray | None) -> Case:
    x = normal(4, 5, 7)
    positions = torch.tensor(np.arange(x.size).reshape(x.shape)[numpy_way].copy())
    return case("Slice", label, (x, *parameters), lambda x, *_: x.reshape(-1)[positions])


SHAPES = [
    case("Reshape", "flat", (normal(3, 4), ints(-1)), lambda x, _: x.reshape(-1)),
    case("Reshape", "keep", (normal(3, 4), ints(0, 2, 2)), lambda x, _: x.reshape(3, 2, 2)),
    case("Flatten", "", (normal(2, 3, 4),), lambda x: x.reshape(2, 12)),
    case("Flatten", "all", (normal(2, 3, 4),), lambda x: x.reshape(1, 24), axis=0),
    case("Squeeze", "", (normal(1, 3, 1), ints(-1)), lambda x, _: x.squeeze(-1)),
    case("Squeeze", "all", (normal(1, 3, 1),), lambda x: x.squeeze()),
    case("Unsqueeze", "", (normal(3, 4), ints(0, -1)), lambda x, _: x[None, ..., None]),
    case("Transpose", "", (normal(2, 3, 4),), lambda x: x.permute(2, 1, 0)),
    case("Transpose", "perm", (normal(2, 3, 4),), lambda x: x.permute(1, 2, 0), perm=[1, 2, 0]),
    case("Expand", "", (normal(3, 1), ints(2, 3, 4)), lambda x, _: x.expand(2, 3, 4)),
    case("Expand", "both-ends", (normal(3, 1, 5, 1), ints(2, 3, 4, 5, 6)),
         lambda x, _: x.expand(2, 3, 4, 5, 6)),
    case("Expand", "everywhere", (normal(1), ints(3, 4)), lambda x, _: x.expand(3, 4)),
    case("Expand", "leading", (normal(4), ints(2, 3, 4)), lambda x, _: x.expand(2, 3, 4)),
    case("Expand", "smaller", (normal(3, 4), ints(1, 4)), lambda x, _: x * 1),
    case("Identity", "", (normal(3, 4),), lambda x: x * 1),
    case("Concat", "", (normal(2, 3), normal(2, 1)), lambda *x: torch.cat(x, 1), axis=-1),
    case(
        "Concat",
        "three",
        (normal(2, 3), normal(1, 3), normal(4, 3)),
        lambda *x: torch.cat(x, 0),
        axis=0,
    ),
    Case(
        "Split",
        (normal(2, 7), ints(3, 0, 4)),
        lambda x, _: (x[:, :3], x[:, 3:3], x[:, 3:]),
        {"axis": 1},
        outputs=3,
        label="sizes",
    ),
    Case(
        "Split",
        (normal(5, 3),),
        lambda x: (x[:2], x[2:4], x[4:]),
        {"num_outputs": 3},
        outputs=3,
        label="uneven",
    ),
]  # fmt: skip

SLICES = [
    slices("whole", (slice(None),), ints(0), ints(2**62)),
    slices("ends", (slice(1, 3), slice(-3, -1)), ints(1, -3), ints(3, -1)),
    slices("axes", (slice(None), slice(0, 2), slice(2, 9)), ints(2, -9), ints(9, 2), ints(-1, 1)),
    slices(
        "steps",
        (slice(None), slice(0, 5, 2), slice(1, 7, 3)),
        ints(0, 1), ints(5, 7), ints(1, 2), ints(2, 3),
    ),
    slices(
        "back",
        (slice(None), slice(None, None, -1), slice(-2, 0, -2)),
        ints(2**31, -2), ints(-(2**31), 0), ints(1, 2), ints(-1, -2),
    ),
]  # fmt: skip


def pads(label: str, mode: str, x: np.ndarray, before: list[int], after: list[int]) -> Case:
    """A Pad of every axis of `x` in a mode that copies elements; torch has fewer of them."""
    margins = list(zip(before, after, strict=True))
    places = torch.tensor(np.pad(np.arange(x.size).reshape(x.shape), margins, mode=mode))  # type: ignore[call-overload]
    return case(
        "Pad",
        f"{mode}-{label}",
        (x, ints(*before, *after)),
        lambda x, _: x.reshape(-1)[places],
        mode=mode,
    )


def zero_pads(label: str, *parameters: Any) -> Case:
    """A Pad by 2 before, 1 after along the last axis, 1 before and none after the first."""

    def formula(x, pads, value=None, axes=None):
        return torch.nn.functional.pad(x, (2, 1, 1, 0)) + (
            0 if value is None else value * (1 - torch.nn.functional.pad(x * 0 + 1, (2, 1, 1, 0)))
        )

    return case("Pad", label, (normal(3, 4), *parameters), formula)


PADS = [
    zero_pads("zeros", ints(1, 2, 0, 1)),
    zero_pads("value", ints(1, 2, 0, 1), np.array(0.5)),
    zero_pads("axes", ints(2, 1, 1, 0), None, ints(1, 0)),
    zero_pads("value-axes", ints(2, 1, 1, 0), np.array(0.5), ints(-1, -2)),
    *(
        pads("", mode, normal(3, 5), [2, 0], [1, 4])
        for mode in ("reflect", "edge", "wrap")
    ),
    case(
        "Pad",
        "unread value",
        (normal(2, 3), ints(0, 1, 0, 0), np.array(0.5)),
        lambda x, _, value: torch.cat((x[:, :1], x), 1),
        mode="edge",
    ),
    pads("one", "edge", normal(1, 2), [2, 1], [1, 3]),
    pads("often", "wrap", normal(2, 3), [5, 1], [4, 0]),
    Case(
        "Pad",
        (normal(4, 5), ints(-1, 2, 1, -2)),
        lambda x, _: torch.nn.functional.pad(x, (2, -2, -1, 1)),
        label="negative",
        without_finite_differences="the reference does not cut",
    ),
]  # fmt: skip


def depth_to_space(label: str, **attributes: Any) -> Case:
    """Blocks of 2 by 2."""

    def columns_first(x):
        n, c, h, w = x.shape
        blocks = x.reshape(n, 2, 2, c // 4, h, w).permute(0, 3, 4, 1, 5, 2)
        return blocks.reshape(n, c // 4, 2 * h, 2 * w)

    crd = attributes.get("mode") == "CRD"
    formula = (lambda x: torch.nn.functional.pixel_shuffle(x, 2)) if crd else columns_first
    return case("DepthToSpace", label, (normal(2, 8, 2, 3),), formula, blocksize=2, **attributes)


def space_to_depth(x):
    n, c, h, w = x.shape
    return (
        x.reshape(n, c, h // 2, 2, w // 2, 2)
        .permute(0, 3, 5, 1, 2, 4)
        .reshape(n, 4 * c, h // 2, w // 2)
    )


def reverse_sequences(x, lengths):
    rows = [torch.cat([r[:n].flip(0), r[n:]]) for r, n in zip(x, lengths, strict=True)]
    return torch.stack(rows)


def overlap_1d(x, *_):
    return torch.nn.functional.fold(x, (8, 1), (4, 1)).squeeze(-1)


def contrib(
    op: str, inputs: tuple[Any, ...], formula: Callable[..., Any], **attributes: Any
) -> Case:
    return Case(
        op,
        inputs,
        formula,
        attributes,
        domain="com.microsoft",
        label="contrib",
        without_finite_differences="the reference lacks it",
    )


OTHERS = [
    case("Tile", "", (normal(2, 3), ints(2, 3)), lambda x, _: x.repeat(2, 3)),
    case("Tile", "one-axis", (normal(2, 3), ints(1, 4)), lambda x, _: x.repeat(1, 4)),
    case("Tile", "none", (normal(2, 3), ints(1, 1)), lambda x, _: x * 1),
    case("Trilu", "upper", (normal(2, 4, 5),), torch.triu),
    case("Trilu", "lower", (normal(4, 5), np.array(-1)), lambda x, k: x.tril(-1), upper=0),
    case(
        "ReverseSequence", "batch-first", (normal(3, 4, 2), ints(1, 4, 2)), reverse_sequences,
        time_axis=1, batch_axis=0,
    ),
    case(
        "ReverseSequence", "time-first", (normal(4, 3, 2), ints(1, 4, 2)),
        lambda x, n: reverse_sequences(x.transpose(0, 1), n).transpose(0, 1),
    ),
    depth_to_space("default"),
    depth_to_space("CRD", mode="CRD"),
    case("SpaceToDepth", "", (normal(2, 3, 4, 6),), space_to_depth, blocksize=2),
    case(
        "CenterCropPad", "both", (normal(5, 3), ints(2, 6)),
        lambda x, _: torch.nn.functional.pad(x[1:3], (1, 2)),
    ),
    case(
        "CenterCropPad", "axis", (normal(5, 3), ints(4)), lambda x, _: x[:4], axes=[0],
    ),
    case("Dropout", "off", (normal(3, 4),), lambda x: x * 1),
    case(
        "Dropout", "said-off", (normal(3, 4), np.array(0.5), np.array(False)),
        lambda x, *_: x * 1,
    ),
    case(
        "Col2Im", "", (normal(2, 12, 9), ints(4, 5), ints(2, 3)),
        lambda x, *_: torch.nn.functional.fold(x, (4, 5), (2, 3)),
    ),
    case(
        "Col2Im", "attributes", (normal(2, 12, 6), ints(5, 6), ints(2, 2)),
        lambda x, *_: torch.nn.functional.fold(x, (5, 6), 2, (2, 1), (1, 0), (2, 3)),
        dilations=[2, 1], pads=[1, 0, 1, 0], strides=[2, 3],
    ),
    Case("Col2Im", (normal(1, 4, 5), ints(8), ints(4)), overlap_1d, {"strides": [1]}, label="1d"),
    contrib("ExpandDims", (normal(2, 3), np.array(1, np.int32)), lambda x, _: x[:, None]),
    contrib("Trilu", (normal(4, 5),), torch.tril, upper=0),
]  # fmt: skip

CASES = [*SHAPES, *SLICES, *PADS, *OTHERS]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_finite_differences(case: Case):
    check_finite_differences(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_torch(case: Case):
    check_against_torch(case)


def at_run_time(op: str, parameters: dict[str, np.ndarray], **attributes: Any) -> np.ndarray:
    """Return dx of an operator on x of 3 by 4 whose parameters are inputs; dy is 1, 2, 3 ..."""
    x = ir.val("x", ir.DataType.FLOAT, (3, 4))
    given = [
        ir.val(name, ir.DataType.from_numpy(array.dtype), array.shape)
        for name, array in parameters.items()
    ]
    node = ir.node(op, [x, *given], attributes, outputs=[ir.val("y")], name="node")
    y = node.outputs[0]
    graph = ir.Graph([x, *given], [y], nodes=[node], opset_imports={"": 23}, name="g")
    model = ir.Model(graph, ir_version=10)
    infer(model)
    feeds = {"x": np.zeros((3, 4), np.float32), **parameters}
    shape = run(model, feeds).shape
    y.shape = ir.Shape(shape)
    dy = ir.val("dy", ir.DataType.FLOAT, shape)
    graph.inputs.append(dy)
    graph.outputs[:] = [differentiate(model, {y: dy}, [x])[x]]
    return run(model, {**feeds, "dy": 1.0 + np.arange(np.prod(shape)).reshape(shape)})


def run(model: ir.Model, feeds: dict[str, np.ndarray]) -> np.ndarray:
    session = onnxruntime.InferenceSession(
        ir.serde.serialize_model(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    cast = {k: v.astype(np.float32) if v.dtype.kind == "f" else v for k, v in feeds.items()}
    return session.run(None, cast)[0]


def test_a_slice_may_be_chosen_at_run_time():
    actual = at_run_time("Slice", {"starts": ints(2, 3), "ends": ints(-9, 0), "axes": ints(0, 1),
                                   "steps": ints(-2, -1)})  # fmt: skip
    assert actual.tolist() == [[0, 6, 5, 4], [0, 0, 0, 0], [0, 3, 2, 1]]


def test_a_padding_may_be_chosen_at_run_time():
    actual = at_run_time("Pad", {"pads": ints(1, 0, -1, 1)})
    assert actual.tolist() == [[6, 7, 8, 9], [11, 12, 13, 14], [0, 0, 0, 0]]


def test_a_reflection_may_be_chosen_at_run_time():
    actual = at_run_time("Pad", {"pads": ints(0, 1, 0, 0)}, mode="reflect")
    assert actual.tolist() == [[2, 4, 4, 5], [7, 14, 9, 10], [12, 24, 14, 15]]


def test_only_what_was_chosen_has_a_gradient():
    chosen = {"condition": np.array([False, True, False, True])}
    assert at_run_time("Compress", chosen, axis=1).tolist() == [[0, 1, 0, 2], [0, 3, 0, 4],
                                                                [0, 5, 0, 6]]  # fmt: skip
    flat = {"condition": np.array([False, True, False, False, True])}
    assert at_run_time("Compress", flat).tolist() == [[0, 1, 0, 0], [2, 0, 0, 0], [0, 0, 0, 0]]


def test_parts_that_nothing_reads_are_zeros():
    x = ir.val("x", ir.DataType.FLOAT, (2, 8))
    parts = [ir.val(name) for name in "abcd"]
    node = ir.node("Split", [x], {"axis": 1, "num_outputs": 4}, outputs=parts, name="node")
    graph = ir.Graph([x], parts, nodes=[node], opset_imports={"": 23}, name="g")
    model = ir.Model(graph, ir_version=10)
    infer(model)
    seeds = {part: ir.val(f"d{part.name}", part.dtype, part.shape) for part in parts[1::2]}
    graph.inputs.extend(seeds.values())
    graph.outputs[:] = [differentiate(model, seeds, [x])[x]]
    actual = run(model, {"x": np.zeros((2, 8)), "db": np.ones((2, 2)), "dd": np.ones((2, 2))})
    assert actual.tolist() == [[0, 0, 1, 1, 0, 0, 1, 1]] * 2
