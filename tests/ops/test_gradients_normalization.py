"""Gradients of normalisations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
import torch
from gradient_check import Case, check_against_torch, check_finite_differences
from torch.nn import functional

from sambac.autodiff import differentiate

RNG = np.random.default_rng(7)


def draw(*shape: int):
    return RNG.normal(size=shape)


def positive(*shape: int):
    return RNG.uniform(0.5, 2, size=shape)


def far(*shape: int):
    """Numbers whose mean is a hundred times their deviation, exact in float32."""
    return (100 + draw(*shape)).astype(np.float32).astype(np.float64)


def batch(label, *shape, momentum=0.0, x=None, **attributes):
    """A sample of BatchNormalization in training."""
    channels = shape[1]
    old = draw(channels), positive(channels)
    epsilon = attributes.get("epsilon", 1e-5)

    def run(x, scale, bias, mean, var):
        axes = [axis for axis in range(len(shape)) if axis != 1]
        y = functional.batch_norm(x, None, None, scale, bias, training=True, eps=epsilon)
        new_mean, new_var = x.detach().mean(axes), x.detach().var(axes, correction=0)
        old, new = momentum, 1 - momentum
        return y, old * mean + new * new_mean, old * var + new * new_var

    attributes |= {"training_mode": 1, "momentum": momentum}
    inputs = (draw(*shape) if x is None else x, positive(channels), draw(channels), *old)
    return Case("BatchNormalization", inputs, run, attributes, outputs=3, wrt=(0, 1, 2),
                label=label)  # fmt: skip


def frozen(label, *shape, **attributes):
    """A sample of BatchNormalization in inference."""
    channels = shape[1]
    epsilon = attributes.get("epsilon", 1e-5)

    def run(x, scale, bias, mean, var):
        wide = [v.reshape(-1, *[1] * (x.dim() - 2)) for v in (scale, bias, mean, var)]
        return (x - wide[2]) / torch.sqrt(wide[3] + epsilon) * wide[0] + wide[1]

    inputs = (draw(*shape), positive(channels), draw(channels), draw(channels), positive(channels))
    return Case("BatchNormalization", inputs, run, attributes, label=f"frozen {label}")


BATCH = [
    batch("images", 4, 3, 5, 6),
    batch("rows", 8, 5, epsilon=1e-3),
    batch("1d", 4, 3, 7),
    batch("3d", 2, 3, 3, 2, 4),
    batch("long rows", 2, 2, 8, 16),
    batch("momentum", 4, 3, 5, 6, momentum=0.9),
    # The kernel's mean, a float32 near 100, limits what is possible.
    replace(batch("far from zero", 8, 3, 9, 7, x=far(8, 3, 9, 7)), tolerance=5e-5),
    replace(batch("far from zero, rows", 64, 3, x=far(64, 3)), tolerance=5e-5),
    frozen("images", 3, 4, 5, 2, epsilon=1e-3),
    frozen("rows", 6, 4),
    frozen("1d", 3, 4, 5),
    frozen("long rows", 2, 3, 130),
]


def without_new_statistics(case: Case) -> Case:
    """The case with running statistics that stay what they were, as they have no gradient."""
    if case.outputs == 1:
        return case
    return replace(case, attributes={**case.attributes, "momentum": 1.0})


def layer(label, shape, axis=-1, bias=True, scale=None, x=None, **attributes):
    """A sample of LayerNormalization."""
    sizes = shape[axis:]
    scale = sizes if scale is None else scale
    epsilon = attributes.get("epsilon", 1e-5)

    def run(x, scale, bias=0.0):
        return functional.layer_norm(x, sizes, eps=epsilon) * scale + bias

    x = draw(*shape) if x is None else x
    inputs = (x, positive(*scale), *((draw(*scale),) if bias else ()))
    return Case("LayerNormalization", inputs, run, {"axis": axis, **attributes}, label=label)


def statistics(label, shape, read, axis=-1, bias=True):
    """A sample of LayerNormalization whose mean, or reciprocal deviation, is a result too."""
    sizes, axes = shape[axis:], tuple(range(axis, 0))

    def run(x, scale, bias=0.0):
        root = (x.var(axes, unbiased=False, keepdim=True) + 1e-2).rsqrt()
        y = functional.layer_norm(x, sizes, eps=1e-2) * scale + bias
        return tuple((y, x.mean(axes, keepdim=True), root)[index] for index in read)

    inputs = (draw(*shape), positive(*sizes), *((draw(*sizes),) if bias else ()))
    attributes = {"axis": axis, "epsilon": 1e-2}
    return Case("LayerNormalization", inputs, run, attributes, 3, read, label=label,
                without_finite_differences="the reference rounds statistics")  # fmt: skip


LAYER = [
    statistics("all results", (3, 4, 8), (0, 1, 2)),
    statistics("mean", (3, 4, 5), (0, 1), axis=-2, bias=False),
    statistics("deviation alone", (3, 4), (2,)),
    layer("plain", (3, 4, 8)),
    layer("rows", (6, 8), epsilon=1e-2),
    layer("no bias", (3, 4, 8), bias=False),
    layer("two axes", (3, 4, 5), axis=-2),
    layer("from the first", (2, 3, 4), axis=1),
    layer("whole", (3, 4), axis=0),
    layer("one number", (3, 4, 5), axis=-2, scale=(1,)),
    layer("part of a row", (3, 4, 5), axis=-2, scale=(5,)),
    layer("far from zero", (16, 64), x=far(16, 64)),
    layer("leading one", (3, 4, 5), scale=(1, 5)),
]


def rms(op, label, shape, axis=-1, scale=None, **attributes):
    """A sample of RMSNormalization."""
    sizes = shape[axis:]
    epsilon = attributes.get("epsilon", 1e-5)

    def run(x, scale):
        return functional.rms_norm(x, sizes, eps=epsilon) * scale

    inputs = (draw(*shape), positive(*(scale or sizes)))
    without = "" if op == "RMSNormalization" else "the reference evaluator does not know it"
    return Case(op, inputs, run, {"axis": axis, **attributes}, label=label,
                without_finite_differences=without)  # fmt: skip


RMS = [
    rms("RMSNormalization", "plain", (3, 4, 8)),
    rms("RMSNormalization", "two axes", (3, 4, 5), axis=-2, epsilon=1e-2),
    rms("RMSNormalization", "one number", (3, 4, 5), scale=(1,)),
    rms("SimplifiedLayerNormalization", "plain", (3, 4, 8)),
]


def grouped(op, label, shape, groups, x=None, **attributes):
    """A sample of InstanceNormalization or GroupNormalization."""
    epsilon = attributes.get("epsilon", 1e-5)

    def run(x, scale, bias):
        return functional.group_norm(x, groups, scale, bias, eps=epsilon)

    inputs = (draw(*shape) if x is None else x, positive(shape[1]), draw(shape[1]))
    without = "its body computes in float32" if op == "GroupNormalization" else ""
    return Case(op, inputs, run, attributes, label=label, without_finite_differences=without)


GROUPED = [
    grouped("InstanceNormalization", "images", (2, 3, 4, 5), 3, epsilon=1e-3),
    grouped("InstanceNormalization", "1d", (2, 3, 9), 3),
    grouped("InstanceNormalization", "3d", (2, 3, 2, 3, 4), 3),
    # As with BatchNormalization, the kernel's mean limits what is possible.
    replace(
        grouped("InstanceNormalization", "far from zero", (2, 3, 9, 7), 3, x=far(2, 3, 9, 7)),
        tolerance=5e-5,
    ),
    grouped("GroupNormalization", "images", (2, 6, 4, 5), 2, num_groups=2),
    grouped("GroupNormalization", "rows", (4, 12), 3, num_groups=3, epsilon=1e-3),
    grouped("GroupNormalization", "long rows", (2, 4, 8, 16), 2, num_groups=2),
    grouped("GroupNormalization", "one group", (2, 4, 5), 1, num_groups=1),
]

NO_REFERENCE = "the reference evaluator does not know it"


def skip_layer(label, skip, beta=True, bias=True, **attributes):
    """A sample of SkipLayerNormalization."""
    epsilon = attributes.get("epsilon", 1e-12)

    def run(x, skip, scale, beta=None, bias=None):
        total = x + skip + (0 if bias is None else bias)
        return functional.layer_norm(total, (6,), scale, beta, epsilon)

    inputs = (draw(3, 4, 6), draw(*skip), positive(6), draw(6) if beta else None,
              draw(6) if bias else None)  # fmt: skip
    return Case("SkipLayerNormalization", inputs, run, attributes, label=label,
                domain="com.microsoft", without_finite_differences=NO_REFERENCE)  # fmt: skip


def skip_simplified(label, skip, bias=True, **attributes):
    """A sample of SkipSimplifiedLayerNormalization."""
    epsilon = attributes.get("epsilon", 1e-12)

    def run(x, skip, scale, bias=None):
        total = x + skip + (0 if bias is None else bias)
        return functional.rms_norm(total, (6,), scale, epsilon)

    inputs = (draw(3, 4, 6), draw(*skip), positive(6), *((draw(6),) if bias else ()))
    return Case("SkipSimplifiedLayerNormalization", inputs, run, attributes, label=label,
                domain="com.microsoft", without_finite_differences=NO_REFERENCE)  # fmt: skip


SKIP = [
    skip_layer("all", (3, 4, 6)),
    skip_layer("no bias", (3, 4, 6), bias=False, epsilon=1e-3),
    skip_layer("no beta", (4, 6), beta=False),
    skip_simplified("all", (3, 4, 6)),
    skip_simplified("no bias", (1, 4, 6), bias=False, epsilon=1e-3),
]


def lp(label, power, x, axis=-1):
    """A sample of LpNormalization."""
    return Case(
        "LpNormalization",
        (x,),
        lambda x: x / torch.linalg.vector_norm(x, power, axis, keepdim=True),
        {"p": power, "axis": axis},
        label=label,
    )


def mean_variance(label, shape, axes):
    """A sample of MeanVarianceNormalization."""

    def run(x):
        variance, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
        return (x - mean) / variance.sqrt()

    return Case("MeanVarianceNormalization", (draw(*shape),), run, {"axes": axes}, label=label,
                without_finite_differences="its body has a float32 constant")  # fmt: skip


def response(label, size, beta=0.75, **attributes):
    """A sample of LRN; the reference evaluator wants as many images as channels."""
    attributes = {"size": size, "beta": beta, "alpha": 0.5, "bias": 1.5, **attributes}
    return Case(
        "LRN",
        (draw(6, 6, 3, 2),),
        lambda x: functional.local_response_norm(
            x, size, attributes["alpha"], beta, attributes["bias"]
        ),
        attributes,
        label=label,
    )


VECTORS = [
    lp("p 2", 2, draw(3, 4, 5)),
    lp("p 1", 1, positive(3, 4, 5), axis=1),
    mean_variance("default", (3, 2, 4, 5), [0, 2, 3]),
    mean_variance("rows", (3, 6), [1]),
    response("3 channels", 3),
    response("5 channels", 5, beta=0.6),
]

CASES = BATCH + LAYER + RMS + GROUPED + SKIP + VECTORS


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_central_differences(case: Case):
    check_finite_differences(without_new_statistics(case))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_those_of_torch(case: Case):
    check_against_torch(case)


def test_the_gradient_of_the_sum_itself_reaches_all_its_terms():
    shape = (2, 3, 4)
    x, skip = (ir.val(name, ir.DataType.FLOAT, shape) for name in ("x", "skip"))
    scale, bias = (ir.val(name, ir.DataType.FLOAT, (4,)) for name in ("scale", "bias"))
    total = ir.val("total", ir.DataType.FLOAT, shape)
    outputs = [ir.val("y", ir.DataType.FLOAT, shape), ir.val(""), ir.val(""), total]
    node = ir.node("SkipLayerNormalization", [x, skip, scale, None, bias], domain="com.microsoft",
                   outputs=outputs)  # fmt: skip
    seed = ir.val("seed", ir.DataType.FLOAT, shape)
    opsets = {"": 23, "com.microsoft": 1}
    inputs = [x, skip, scale, bias, seed]
    graph = ir.Graph(inputs, [total], nodes=[node], opset_imports=opsets, name="g")
    found = differentiate(ir.Model(graph, ir_version=10), {total: seed}, [x, skip, scale, bias])
    assert found[x] is seed
    assert found[skip] is seed
    assert found[bias].shape == (4,)
    assert scale not in found
