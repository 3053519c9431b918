"""Margins of named axes between transposes, and pools that may count a window behind the image."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import sambac
import sambarun

_X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize("given", [False, True], ids=["constant", "given"])
@pytest.mark.parametrize(
    ("axes", "pads"),
    [
        ([2, 0, 1], [1, 0, 2, 0, 3, 1]),
        ([-1], [1, 2]),
        ([1, -3], [0, 1, 2, 0]),
        ([0, 1, 2], [1] * 6),
    ],
)
def test_margins_of_named_axes_between_transposes(axes: list[int], pads: list[int], given: bool):
    def listed(numbers: list[int]) -> str:
        return ", ".join(map(str, numbers))

    margins = "" if given else f", int64[{len(pads)}] pads = {{{listed(pads)}}}"
    operand = f", int64[{len(pads)}] pads" if given else ""
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[2,3,4] x{operand}) => (float[a,b,c] y)
        <int64[{len(axes)}] axes = {{{listed(axes)}}}{margins}> {{
            t = Transpose <perm = [1, 2, 0]> (x)
            p = Pad (t, pads, , axes)
            y = Transpose <perm = [2, 0, 1]> (p)
        }}
    """)
    feeds = {"x": _X, "pads": np.asarray(pads)} if given else {"x": _X}
    with sambarun.load(sambac.compile(model)) as executable:
        found = executable.run(feeds)["y"]
    half, widths = len(axes), [(0, 0)] * 3
    for at, axis in enumerate(axes):
        widths[axis] = (pads[at], pads[half + at])
    expected = np.pad(_X.transpose(1, 2, 0), widths).transpose(2, 0, 1)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("pool", ["MaxPool", "AveragePool"])
def test_a_window_behind_the_image_is_none_beside_constants(pool: str):
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 18]>
        g (float[1,1,4,4] x) => (float[1,1,2,2] y, float[1] z) <float[1] c = {{1.0}}> {{
            y = {pool} <kernel_shape = [1, 1], strides = [2, 2], ceil_mode = 1> (x)
            z = Identity (c)
        }}
    """)
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    with sambarun.load(sambac.compile(model)) as executable:
        np.testing.assert_array_equal(executable.run({"x": x})["y"], x[:, :, ::2, ::2])
