"""Gradients of pooling."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from gradient_check import Case, check_against_torch, check_finite_differences
from torch.nn import functional

from sambac.autodiff import differentiate
from sambac.graph.editor import Editor
from sambac.ops.gradients import axis_maxima

RNG = np.random.default_rng(6)
NO_INDICES = "the reference evaluator gives no indices where all strides are one"


def distinct(*shape: int):
    """Numbers far from each other, so that no maximum changes under a small step."""
    count = int(np.prod(shape))
    return (RNG.permutation(count) - count / 2 + 0.25).reshape(shape) / 10


def pool(op, label, function, x, kernel, without="", torch=None, outputs=1, **attributes):
    """A sample of a pooling; `torch` are the keywords that torch wants besides."""
    dims = len(kernel)
    strides = attributes.get("strides", [1] * dims)
    keywords = {"padding": attributes.get("pads", [0] * dims)[:dims], **(torch or {})}

    def run(x):
        return function(x, kernel, strides, **keywords)

    attributes["kernel_shape"] = kernel
    return Case(op, (distinct(*x),), run, attributes, outputs=outputs, label=label,
                without_finite_differences=without)  # fmt: skip


def maximum(x, kernel, strides, **keywords):
    """Maximum of each window."""
    return getattr(functional, f"max_pool{len(kernel)}d")(x, kernel, strides, **keywords)


def inclusive(x, kernel, strides, **keywords):
    """Average over all elements of a window, padding included."""
    return getattr(functional, f"avg_pool{len(kernel)}d")(x, kernel, strides, **keywords)


def exclusive(x, kernel, strides, **keywords):
    """Average over those elements of a window that are in the image."""
    return inclusive(x, kernel, strides, count_include_pad=False, **keywords)


def dilated(*steps):
    return {"dilation": list(steps)}


CEIL = {"ceil_mode": True}


def tied_once(*shape: int):
    """Distinct numbers but for the last two of the image, which are equal and the largest."""
    image = distinct(*shape)
    image[-1, -1, -2:, -1] = 2 * np.abs(image).max()
    return image


TIED = Case(
    "MaxPool",
    (np.ones((1, 2, 4, 6)),),
    lambda x: maximum(x, [2, 2], [2, 2]),
    {"kernel_shape": [2, 2], "strides": [2, 2]},
    label="tied",
    without_finite_differences="a maximum of equal elements has a kink",
)
MAX_POOL = [
    TIED,
    replace(TIED, label="tied once", inputs=(tied_once(2, 2, 4, 6),)),
    replace(TIED, label="tied, rest", inputs=(np.ones((1, 2, 5, 7)),)),
    replace(TIED, label="tied, overlapping", torch=lambda x: maximum(x, [3, 2], [2, 1]),
            attributes={"kernel_shape": [3, 2], "strides": [2, 1]}),
    pool("MaxPool", "tiles", maximum, (2, 3, 4, 6), [2, 3], strides=[2, 3]),
    pool("MaxPool", "rest", maximum, (2, 3, 5, 7), [2, 2], strides=[2, 2]),
    pool("MaxPool", "gaps", maximum, (2, 3, 8, 7), [2, 2], strides=[3, 3]),
    pool("MaxPool", "padded tiles", maximum, (2, 2, 6, 6), [2, 2], strides=[2, 2],
         pads=[1, 1, 1, 1]),
    pool("MaxPool", "overlapping", maximum, (2, 2, 7, 7), [3, 3], strides=[2, 2],
         pads=[1, 1, 1, 1]),
    pool("MaxPool", "every position", maximum, (1, 2, 5, 4), [3, 2], without=NO_INDICES),
    pool("MaxPool", "dilated", maximum, (1, 2, 8, 8), [3, 2], dilations=[2, 3],
         torch=dilated(2, 3)),
    pool("MaxPool", "dilated apart", maximum, (1, 2, 8, 8), [2, 2], dilations=[2, 2],
         strides=[3, 3], torch=dilated(2, 2)),
    pool("MaxPool", "ceiling", maximum, (1, 2, 7, 6), [3, 3], strides=[2, 2], ceil_mode=1,
         torch=CEIL),
    pool("MaxPool", "ceiling tiles", maximum, (1, 2, 5, 7), [2, 2], strides=[2, 2],
         ceil_mode=1, torch=CEIL),
    pool("MaxPool", "columns first", maximum, (2, 3, 4, 6), [2, 3], strides=[2, 3],
         storage_order=1),
    pool("MaxPool", "with indices", maximum, (2, 3, 4, 6), [2, 3], strides=[2, 3], outputs=2),
    pool("MaxPool", "1d", maximum, (2, 3, 9), [3], strides=[3]),
    pool("MaxPool", "1d overlapping", maximum, (2, 3, 9), [3], strides=[2], pads=[1, 1]),
    pool("MaxPool", "3d", maximum, (1, 2, 4, 5, 4), [2, 2, 2], strides=[2, 2, 2]),
    pool("MaxPool", "3d overlapping", maximum, (1, 2, 4, 5, 4), [2, 3, 2], strides=[1, 2, 1]),
]  # fmt: skip


AVERAGE_POOL = [
    pool("AveragePool", "tiles", exclusive, (2, 3, 4, 6), [2, 3], strides=[2, 3]),
    pool("AveragePool", "rest", exclusive, (2, 3, 5, 8), [2, 3], strides=[2, 3]),
    pool("AveragePool", "every position", exclusive, (1, 2, 5, 6), [3, 2]),
    pool("AveragePool", "every position padded", exclusive, (1, 2, 5, 6), [3, 3],
         pads=[1, 1, 1, 1]),
    pool("AveragePool", "overlapping", exclusive, (1, 2, 7, 8), [3, 4], strides=[2, 3],
         pads=[1, 2, 1, 2]),
    pool("AveragePool", "gaps", exclusive, (1, 2, 7, 8), [2, 2], strides=[3, 3]),
    pool("AveragePool", "ceiling", exclusive, (1, 2, 6, 7), [3, 3], strides=[2, 3],
         pads=[1, 1, 1, 1], ceil_mode=1, torch=CEIL),
    pool("AveragePool", "padding counts", inclusive, (1, 2, 7, 8), [3, 4], strides=[2, 3],
         pads=[1, 2, 1, 2], count_include_pad=1),
    pool("AveragePool", "ceiling, padding counts", inclusive, (1, 2, 6, 7), [3, 3],
         strides=[2, 3], pads=[1, 1, 1, 1], ceil_mode=1, count_include_pad=1, torch=CEIL),
    pool("AveragePool", "every position, padding counts", inclusive, (1, 2, 5, 6), [3, 3],
         pads=[1, 1, 1, 1], count_include_pad=1),
    pool("AveragePool", "1d", exclusive, (2, 3, 8), [2], strides=[2]),
    pool("AveragePool", "1d overlapping", exclusive, (2, 3, 8), [3], strides=[2], pads=[1, 1]),
    pool("AveragePool", "3d", exclusive, (1, 2, 4, 5, 4), [2, 2, 2], strides=[2, 2, 2]),
    pool("AveragePool", "3d overlapping", exclusive, (1, 2, 4, 5, 4), [2, 3, 2],
         strides=[1, 2, 1]),
]  # fmt: skip


def lp(power):
    def run(x, kernel, strides, padding):
        wide = functional.pad(x.abs() ** power, [p for p in reversed(padding) for _ in range(2)])
        return (inclusive(wide, kernel, strides) * np.prod(kernel)) ** (1 / power)

    return run


LP_POOL = [
    pool("LpPool", "p 2", lp(2), (2, 2, 6, 7), [3, 2], strides=[2, 2]),
    pool("LpPool", "p 1", lp(1), (2, 2, 6, 7), [3, 2], strides=[2, 2], p=1),
    pool("LpPool", "p 3", lp(3), (2, 2, 6, 7), [3, 2], strides=[2, 2], p=3),
    pool("LpPool", "padded", lp(2), (2, 2, 6, 7), [3, 2], strides=[2, 2], pads=[1, 1, 1, 1]),
    pool("LpPool", "tiles", lp(2), (2, 2, 6), [2], strides=[2]),
    pool("LpPool", "every position", lp(4), (1, 2, 4, 5, 4), [2, 2, 2], p=4),
]


def unfolded(reduce, pads=(0, 0, 0, 0), padding=0.0, dilation=1):
    """Windows of images by `unfold`, for what torch's pooling does not know; `pads` as of `pad`."""

    def run(x, kernel, strides, **_):
        batch, channels = x.shape[:2]
        wide = functional.pad(x, pads, value=padding)
        columns = functional.unfold(wide, kernel, dilation, 0, strides)
        height = (wide.shape[2] - dilation * (kernel[0] - 1) - 1) // strides[0] + 1
        windows = columns.reshape(batch, channels, kernel[0] * kernel[1], height, -1)
        return reduce(windows)

    return run


def mean(windows):
    return windows.mean(2)


def known_mean(windows):
    """The mean of what is no padding, which is given as NaN."""
    return torch.nanmean(windows, 2)


OTHERS = [
    pool("AveragePool", "dilated", unfolded(mean, dilation=2), (1, 2, 8, 7), [3, 2],
         strides=[2, 1], dilations=[2, 2]),
    pool("AveragePool", "dilated, every position", unfolded(mean, dilation=2), (1, 2, 8, 7),
         [3, 2], dilations=[2, 2]),
    pool("AveragePool", "same upper", unfolded(known_mean, (0, 1, 0, 1), torch.nan), (1, 2, 6, 7),
         [3, 2], strides=[2, 2], auto_pad="SAME_UPPER"),
    pool("MaxPool", "same upper", unfolded(lambda w: w.amax(2), (0, 1, 0, 1), -9e9), (1, 2, 6, 7),
         [3, 2], strides=[2, 2], auto_pad="SAME_UPPER"),
    pool("MaxPool", "same lower", unfolded(lambda w: w.amax(2), (1, 0, 1, 0), -9e9), (1, 2, 6, 7),
         [3, 2], strides=[2, 2], auto_pad="SAME_LOWER",
         without="the reference evaluator pads the other side"),
    pool("LpPool", "dilated", unfolded(lambda w: w.norm(dim=2), dilation=2), (1, 2, 8, 7), [3, 2],
         strides=[2, 1], dilations=[2, 2]),
]  # fmt: skip

SPATIAL = (2, 3)
GLOBAL = [
    Case("GlobalAveragePool", (distinct(2, 3, 4, 5),), lambda x: x.mean(SPATIAL, keepdim=True)),
    Case("GlobalAveragePool", (distinct(2, 3, 4),), lambda x: x.mean(2, keepdim=True), label="1d"),
    Case("GlobalMaxPool", (distinct(2, 3, 4, 5),), lambda x: x.amax(SPATIAL, keepdim=True)),
    Case("GlobalMaxPool", (distinct(2, 3, 4),), lambda x: x.amax(2, keepdim=True), label="1d",
         without_finite_differences="the reference evaluator returns a wrong shape"),
]  # fmt: skip


def unpool(case_label, x, sizes, **attributes):
    """A sample of MaxUnpool, its indices in one flat output."""
    total = x[0] * x[1] * int(np.prod(sizes))
    indices = RNG.permutation(total)[: int(np.prod(x))].reshape(x)

    def run(x, indices):
        flat = torch.zeros(total, dtype=x.dtype).index_put((indices.reshape(-1),), x.reshape(-1))
        return flat.reshape(*x.shape[:2], *sizes)

    return Case("MaxUnpool", (distinct(*x), indices), run, attributes, label=case_label)


UNPOOL = [
    unpool("plain", (2, 3, 2, 3), (4, 6), kernel_shape=[2, 2], strides=[2, 2]),
    unpool("padded", (2, 3, 3, 3), (4, 4), kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1]),
    unpool("1d", (2, 3, 4), (12,), kernel_shape=[3], strides=[3]),
]

CASES = MAX_POOL + AVERAGE_POOL + LP_POOL + OTHERS + GLOBAL + UNPOOL


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_central_differences(case: Case):
    check_finite_differences(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_those_of_torch(case: Case):
    check_against_torch(case)


def few_values(*shape: int):
    """Numbers many of which are equal."""
    return RNG.integers(0, 3, shape).astype(float)


BY_AXIS = [
    *(case for case in MAX_POOL + OTHERS if case.op == "MaxPool"),
    replace(TIED, label="ties of some", inputs=(few_values(2, 2, 9, 8),),
            torch=lambda x: maximum(x, [3, 3], [2, 2], padding=1),
            attributes={"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    replace(TIED, label="ties in volumes", inputs=(few_values(1, 2, 5, 6, 7),),
            torch=lambda x: maximum(x, [3, 2, 3], [1, 2, 2]),
            attributes={"kernel_shape": [3, 2, 3], "strides": [1, 2, 2]}),
    pool("MaxPool", "one axis", maximum, (2, 3, 9, 4), [3, 1], strides=[2, 1]),
    pool("MaxPool", "strides of one element", maximum, (2, 2, 9, 8), [1, 3], strides=[3, 2]),
]  # fmt: skip


@pytest.mark.parametrize("case", BY_AXIS, ids=str)
def test_maxima_by_axis_have_the_gradients_of_torch(case: Case, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(axis_maxima, "_MIN_RESULTS", 0)
    check_against_torch(case)


RECTIFIED = """<ir_version: 10, opset_import: ["" : 23]>
g (float[2,3,4,6] x) => (float[2,3,2,3] y, float[2,3,4,6] r)
{
    r = Relu(x)
    y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
}"""


@pytest.mark.parametrize("tied", [False, True])
def test_zeros_of_a_rectified_image_are_not_ranked(tied: bool) -> None:
    """Whatever gradient they had would stop at the Relu; other maxima that are tied are ranked."""
    model = ir.from_onnx_text(RECTIFIED)
    (x,), (y, r) = model.graph.inputs, model.graph.outputs
    given = {value: ir.val(f"d{value.name}", value.dtype, value.shape) for value in (y, r)}
    model.graph.inputs.extend(given.values())
    # What comes from outside may be infinite, and is then put to ranks of all: this is a loss's.
    editor = Editor(model)
    seeds = {value: editor.op("Identity", seed) for value, seed in given.items()}
    gradient = differentiate(model, seeds, [x])[x]
    (ranks,) = (node.inputs[0] for node in model.graph if node.op_type == "If")
    model.graph.outputs.extend((gradient, ranks))
    image = distinct(2, 3, 4, 6).astype(np.float32)
    image[:, 1] = 1 if tied else -1
    feeds = {f"d{v.name}": RNG.standard_normal(v.shape.numpy(), np.float32) for v in (y, r)}
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
    made, ranked = session.run([gradient.name, ranks.name], {"x": image, **feeds})
    leaf = torch.from_numpy(image).double().requires_grad_()
    rectified = leaf.relu()
    outputs = (maximum(rectified, [2, 2], [2, 2]), rectified)
    torch.autograd.backward(outputs, [torch.from_numpy(each).double() for each in feeds.values()])
    np.testing.assert_allclose(made, leaf.grad, rtol=1e-5, atol=1e-6)
    assert ranked == tied
