"""Gradients of convolutions."""

from __future__ import annotations

import numpy as np
import pytest
from gradient_check import Case, check_against_torch, check_finite_differences
from torch.nn import functional

from sambac.ops.gradients import convolution_sizes, spreading

RNG = np.random.default_rng(5)
GROUPED = "the reference evaluator has no grouped ConvTranspose"


def draw(*shape: int):
    return RNG.normal(size=shape)


def conv(label, x, w, bias=True, pads=None, torch_pads=None, without="", **attributes):
    """A sample of Conv; `torch_pads` are those of `pad`, last axis first."""
    dims = len(x) - 2
    functions = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
    strides = attributes.get("strides", [1] * dims)
    dilations = attributes.get("dilations", [1] * dims)
    group = attributes.get("group", 1)
    pairs = torch_pads
    if pads is not None:
        attributes["pads"] = pads
        pairs = [p for axis in reversed(range(dims)) for p in (pads[axis], pads[axis + dims])]

    def run(x, w, b=None):
        padded = functional.pad(x, pairs) if pairs else x
        return functions[dims](padded, w, b, strides, 0, dilations, group)

    inputs = (draw(*x), draw(*w), *((draw(w[0]),) if bias else ()))
    return Case("Conv", inputs, run, attributes, label=label, without_finite_differences=without)


CONV = [
    conv("plain", (2, 3, 6, 5), (4, 3, 3, 3), pads=[1, 1, 1, 1]),
    conv("no bias", (2, 3, 6, 5), (4, 3, 3, 2), bias=False),
    conv("many images", (5, 2, 4, 5), (3, 2, 2, 3), pads=[0, 1, 1, 2], strides=[2, 1]),
    conv("many channels", (1, 6, 5, 5), (2, 6, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2]),
    conv("few channels", (2, 5, 6, 6), (3, 5, 3, 2), strides=[1, 2]),
    conv("many images and channels", (6, 5, 4, 5), (3, 5, 2, 3), pads=[0, 1, 1, 2]),
    conv("rest", (1, 2, 8, 9), (2, 2, 3, 3), strides=[3, 4]),
    conv("dilated", (2, 2, 9, 8), (3, 2, 3, 2), dilations=[2, 3], pads=[1, 0, 2, 1]),
    conv("groups", (2, 4, 5, 5), (6, 2, 3, 3), group=2, pads=[1, 1, 1, 1], strides=[2, 1],
         without=GROUPED),
    conv("depthwise", (2, 3, 5, 6), (3, 1, 3, 3), group=3, pads=[1, 1, 1, 1]),
    conv("depthwise twice", (2, 3, 5, 6), (6, 1, 3, 3), group=3, strides=[2, 2], without=GROUPED),
    conv("1x1", (2, 3, 4, 5), (4, 3, 1, 1)),
    conv("1x1 groups", (2, 4, 4, 5), (6, 2, 1, 1), group=2, without=GROUPED),
    conv("1x1 strided", (2, 3, 5, 5), (4, 3, 1, 1), strides=[2, 2]),
    conv("1x1 padded", (2, 3, 3, 3), (2, 3, 1, 1), pads=[1, 0, 0, 1]),
    conv("1d", (2, 3, 9), (4, 3, 4), pads=[2, 1], strides=[2]),
    conv("1d dilated groups", (2, 4, 9), (4, 2, 3), pads=[2, 1], dilations=[2], group=2,
         without=GROUPED),
    conv("3d", (1, 2, 4, 5, 3), (3, 2, 2, 3, 2), pads=[1, 1, 0, 0, 1, 1], strides=[1, 2, 1]),
    conv("3d dilated", (2, 2, 4, 5, 3), (3, 2, 2, 2, 2), dilations=[2, 1, 1]),
    conv("3d dilated groups", (2, 4, 4, 5, 3), (4, 2, 2, 2, 2), dilations=[2, 1, 1], group=2,
         without=GROUPED),
    conv("same upper", (1, 2, 6, 7), (2, 2, 3, 2), auto_pad="SAME_UPPER", strides=[2, 2],
         torch_pads=[0, 1, 0, 1]),
    conv("same lower", (1, 2, 6, 5), (2, 2, 3, 4), auto_pad="SAME_LOWER", strides=[2, 2],
         torch_pads=[2, 1, 1, 0]),
    conv("valid", (1, 2, 6, 5), (2, 2, 3, 4), auto_pad="VALID"),
    conv("kernel covers all", (3, 2, 4, 4), (5, 2, 4, 4)),
]  # fmt: skip


def conv_transpose(label, x, w, bias=True, torch=None, without="", **attributes):
    """A sample of ConvTranspose; `torch` are the keywords that torch wants instead."""
    dims = len(x) - 2
    functions = {
        1: functional.conv_transpose1d,
        2: functional.conv_transpose2d,
        3: functional.conv_transpose3d,
    }
    group = attributes.get("group", 1)
    pads = attributes.get("pads", [0] * 2 * dims)
    keywords = {
        "stride": attributes.get("strides", [1] * dims),
        "dilation": attributes.get("dilations", [1] * dims),
        "output_padding": attributes.get("output_padding", [0] * dims),
        "padding": pads[:dims],
        **(torch or {}),
    }

    crop = keywords.pop("crop", None)

    def run(x, w, b=None):
        made = functions[dims](x, w, b, groups=group, **keywords)
        return made if crop is None else functional.pad(made, [-c for c in crop])

    inputs = (draw(*x), draw(*w), *((draw(w[1] * group),) if bias else ()))
    return Case(
        "ConvTranspose", inputs, run, attributes, label=label, without_finite_differences=without
    )


CONV_TRANSPOSE = [
    conv_transpose("plain", (2, 3, 4, 5), (3, 2, 3, 3)),
    conv_transpose("no bias", (2, 3, 4, 5), (3, 2, 3, 3), bias=False, pads=[1, 2, 1, 2]),
    conv_transpose("strided", (2, 3, 4, 3), (3, 2, 3, 3), strides=[2, 3], pads=[1, 1, 1, 1],
                   output_padding=[1, 2]),
    conv_transpose("dilated", (2, 3, 4, 3), (3, 2, 3, 2), dilations=[2, 3], strides=[2, 1]),
    conv_transpose("groups", (2, 4, 4, 5), (4, 3, 3, 3), group=2, strides=[2, 2],
                   without=GROUPED),
    conv_transpose("depthwise", (2, 3, 4, 5), (3, 1, 3, 3), bias=False, group=3, strides=[2, 2]),
    conv_transpose("1x1", (2, 3, 4, 5), (3, 2, 1, 1)),
    conv_transpose("1d", (2, 3, 6), (3, 2, 4), strides=[2], pads=[1, 1]),
    conv_transpose("3d", (1, 2, 3, 2, 4), (2, 2, 2, 3, 2), strides=[1, 2, 1]),
    conv_transpose("one image", (1, 6, 3, 3), (6, 5, 2, 2), strides=[2, 2]),
    conv_transpose("same", (1, 2, 4, 4), (2, 2, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER",
                   torch={"padding": 0, "crop": (0, 1, 0, 1)}),
    conv_transpose("same lower", (1, 2, 4, 4), (2, 2, 3, 3), strides=[2, 2], auto_pad="SAME_LOWER",
                   torch={"padding": 0, "crop": (1, 0, 1, 0)}),
    conv_transpose("output shape", (1, 2, 4, 4), (2, 2, 3, 3), strides=[2, 2], output_shape=[8, 8],
                   torch={"padding": 0, "crop": (1, 0, 1, 0)},
                   without="the reference evaluator does not distribute the padding"),
]  # fmt: skip


@pytest.mark.parametrize("case", CONV + CONV_TRANSPOSE, ids=str)
def test_gradients_are_central_differences(case: Case):
    check_finite_differences(case)


@pytest.mark.parametrize("case", CONV + CONV_TRANSPOSE, ids=str)
def test_gradients_are_those_of_torch(case: Case):
    check_against_torch(case)


@pytest.mark.parametrize("case", CONV[:3] + CONV_TRANSPOSE[:4], ids=str)
def test_large_columns_are_never_made_in_one_piece(case: Case, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(spreading, "_FEW_COLUMNS", 0)
    monkeypatch.setattr(convolution_sizes, "_MAX_COLUMNS", 0)
    check_finite_differences(case)
    check_against_torch(case)
