"""Programs in blocks of channels give what the portable ones give."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from sambac.graph.constants import is_literal
from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.planning.plans import LiveSets
from sambac.section_program import FormalProgram, SectionModel, SectionSource
from sambac.variants.blocked import SIZES, BlockConvolutions
from sambac.variants.layout import DOMAIN
from sambarun.sessions.host_features import host_features
from sambarun.sessions.opening import Tuning
from sambarun.sessions.threads import Threads

FEATURES = host_features(Tuning(Threads(1)))
HOST = next((block for block in SIZES if f"nchwc{block}" in FEATURES), None)
needs_blocks = pytest.mark.skipif(HOST is None, reason="this host has no blocked convolutions")


def section(text: str) -> SectionModel:
    """Return the whole main graph of `text` as one section."""
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 23]> {text}')
    for index, node in enumerate(model.graph):
        node.name = f"n{index}"
    InferShapes()(model)
    sets = LiveSets(
        ops=tuple(str(node.name) for node in model.graph),
        live_in=tuple(str(value.name) for value in model.graph.inputs),
        weights=(),
        live_out=tuple(str(value.name) for value in model.graph.outputs),
    )
    source = SectionSource.of(model, is_literal)
    made = source.model(sets)
    assert made.program() == source.program(sets)
    return made


def blocked_program(made: SectionModel, block: int) -> FormalProgram | None:
    """Rewrite a section for blocks; None if nothing in it can be blocked."""
    return made.program() if BlockConvolutions(block)(made.model).modified else None


def run(program: FormalProgram, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(program.graph, options, ["CPUExecutionProvider"]).run(None, feeds)


def operators(program: FormalProgram) -> list[str]:
    nodes = onnx.load_model_from_string(program.graph).graph.node
    return [("blocked " if node.domain == DOMAIN else "") + node.op_type for node in nodes]


def check(text: str) -> list[str]:
    """Compare the program for this host with the portable one; return its operators."""
    assert HOST is not None
    portable = section(text).program()
    blocked = blocked_program(section(text), HOST)
    assert blocked is not None
    assert (blocked.inputs, blocked.weights, blocked.outputs) == (
        portable.inputs,
        portable.weights,
        portable.outputs,
    )
    rng = np.random.default_rng(0)
    graph = onnx.load_model_from_string(portable.graph).graph
    feeds = {
        value.name: rng.standard_normal(
            [dim.dim_value for dim in value.type.tensor_type.shape.dim], dtype=np.float32
        )
        for value in graph.input
    }
    for got, expected in zip(run(blocked, feeds), run(portable, feeds), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    return operators(blocked)


class Form(NamedTuple):
    """A convolution of x [2, channels, 9, 7] with filters [maps, per_group, *kernel]."""

    channels: int = 32
    maps: int = 64
    kernel: tuple[int, int] = (3, 3)
    group: int = 1
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)

    def has_zeros_set(self, op: str) -> bool:
        """Whether so many pads lie beside a row that zeros in their place are faster."""
        beside = self.pads[1] + self.pads[3]
        if op == "ConvTranspose":
            beside = 2 * (self.kernel[1] - 1) * self.dilations[1] - beside
        return beside >= 4 and self.group == 1 and self.channels >= 16

    def text(self, op: str) -> str:
        transposed = op == "ConvTranspose"
        lead, inner = (
            (self.channels, self.maps // self.group)
            if transposed
            else (self.maps, self.channels // self.group)
        )
        rows, columns = self.kernel
        attributes = ", ".join(
            f"{name} = [{', '.join(map(str, getattr(self, name)))}]"
            for name in ("strides", "dilations", "pads")
        )
        sizes = tuple(
            (size - 1) * stride - before - after + (taps - 1) * step + 1
            if transposed
            else (size + before + after - (taps - 1) * step - 1) // stride + 1
            for size, stride, before, after, taps, step in zip(
                (9, 7), self.strides, self.pads[:2], self.pads[2:], self.kernel, self.dilations,
                strict=True,
            )
        )  # fmt: skip
        result = f"float[2,{self.maps},{sizes[0]},{sizes[1]}] y"
        return (
            f"g (float[2,{self.channels},9,7] x, float[{lead},{inner},{rows},{columns}] w, "
            f"float[{self.maps}] b) => ({result}) "
            f"{{ y = {op}<group = {self.group}, {attributes}>(x, w, b) }}"
        )


BOTH = {
    "plain": Form(),
    "one pad": Form(pads=(1, 0, 0, 2)),
    "no pad": Form(pads=(0, 0, 0, 0)),
    "large": Form(kernel=(5, 3), pads=(2, 1, 2, 1)),
    "wide": Form(kernel=(3, 5), pads=(1, 3, 0, 1)),
    "wide, depthwise": Form(maps=32, group=32, kernel=(3, 5), pads=(1, 2, 1, 2)),
    "dilated": Form(dilations=(2, 1), pads=(2, 1, 2, 1)),
    "depthwise": Form(maps=32, group=32),
    "depthwise, dilated": Form(maps=32, group=32, dilations=(2, 2), pads=(2, 2, 2, 2)),
    "depthwise, stride": Form(maps=32, group=32, strides=(2, 2)),
    "depthwise, strides": Form(maps=32, group=32, strides=(3, 1), pads=(0, 1, 0, 0)),
}
FORWARD = {
    **BOTH,
    "stride": Form(strides=(2, 2)),
    "one channel": Form(channels=1),
    "three channels": Form(channels=3, strides=(2, 1)),
    "wide, stride": Form(kernel=(3, 5), strides=(1, 2), pads=(1, 2, 1, 2)),
    "wide, few channels": Form(channels=3, kernel=(3, 5), pads=(1, 2, 1, 2)),
}
KEPT = {
    "odd channels": Form(channels=18),
    "odd maps": Form(maps=20),
    "groups": Form(group=2),
    "several filters each": Form(maps=64, group=32),
    "pointwise": Form(kernel=(1, 1), pads=(0, 0, 0, 0)),
}


@needs_blocks
@pytest.mark.parametrize("form", FORWARD.values(), ids=FORWARD)
def test_convolutions(form: Form) -> None:
    made = check(form.text("Conv"))
    assert "blocked Conv" in made
    assert ("Pad" in made) == form.has_zeros_set("Conv")


@needs_blocks
@pytest.mark.parametrize("form", BOTH.values(), ids=BOTH)
def test_transposed_convolutions(form: Form) -> None:
    made = check(form.text("ConvTranspose"))
    assert "blocked Conv" in made
    assert "ConvTranspose" not in made
    assert ("Pad" in made) == form.has_zeros_set("ConvTranspose")


@pytest.mark.parametrize("form", KEPT.values(), ids=KEPT)
@pytest.mark.parametrize("block", SIZES)
def test_what_stays_as_it_is(form: Form, block: int) -> None:
    assert blocked_program(section(form.text("Conv")), block) is None


KEPT_TRANSPOSED = {
    "stride": Form(strides=(2, 2)),
    "few channels": Form(channels=3),
    "groups": Form(group=2),
    "cropped": Form(maps=32, group=32, strides=(3, 1), pads=(0, 1, 1, 0)),
}


@pytest.mark.parametrize("form", KEPT_TRANSPOSED.values(), ids=KEPT_TRANSPOSED)
def test_transposed_convolutions_that_stay(form: Form) -> None:
    assert blocked_program(section(form.text("ConvTranspose")), 16) is None


def test_smaller_blocks_take_more() -> None:
    text = Form(channels=24, maps=8).text("Conv")
    assert blocked_program(section(text), 16) is None
    assert blocked_program(section(text), 8) is not None


CHAIN = """g (float[2,32,8,8] x, float[32,32,3,3] v, float[32,32,1,1] w, float[2,32,8,8] r)
    => (float[2,32,4,4] y)
{
    a = Conv<pads = [1, 1, 1, 1]>(x, v)
    s = Add(a, r)
    c = Relu(s)
    d = Conv(c, w)
    e = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(d)
    y = Conv<pads = [1, 1, 1, 1]>(e, v)
}"""


@needs_blocks
def test_chains_stay_in_blocks() -> None:
    made = check(CHAIN)
    assert made.count("blocked Conv") == 3
    assert made.count("blocked ReorderInput") == 2 + 3, "x and r, and filters"
    assert made.count("blocked ReorderOutput") == 1, "y"
    assert "blocked MaxPool" in made


POOLS = {
    "average": "AveragePool<kernel_shape = [2, 2], strides = [2, 2]>",
    "average of pads": "AveragePool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1], "
    "count_include_pad = 1>",
    "average beyond": "AveragePool<kernel_shape = [2, 3], strides = [2, 2], ceil_mode = 1>",
    "largest": "MaxPool<kernel_shape = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1]>",
    "largest beyond": "MaxPool<kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1>",
    "largest, gaps": "MaxPool<kernel_shape = [2, 3], dilations = [2, 2], ceil_mode = 1>",
}
POOLS_KEPT = {
    "average beyond pads": "AveragePool<kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1, "
    "count_include_pad = 1>",
    "average, gaps": "AveragePool<kernel_shape = [2, 2], dilations = [2, 2]>",
}


@needs_blocks
@pytest.mark.parametrize("pool", {**POOLS, **POOLS_KEPT}.values(), ids={**POOLS, **POOLS_KEPT})
def test_pools(pool: str) -> None:
    made = check(
        "g (float[2,32,7,8] x, float[32,32,3,3] w) => (float[N,C,H,W] y) {\n"
        f"  a = Conv<pads = [1, 1, 1, 1]>(x, w)\n  p = {pool}(a)\n"
        "  y = Conv<pads = [1, 1, 1, 1]>(p, w)\n}"
    )
    assert made.count("blocked Conv") == 2
    kind = pool.partition("<")[0]
    assert (f"blocked {kind}" in made) == (pool in POOLS.values())


MASKED = """g (float[2,32,8,8] x, float[32,32,3,3] w, float[2,32,8,8] m, float[2,32,8,8] n)
    => (float[2,32,8,8] y, float[2,32] z)
{
    a = Conv<pads = [1, 1, 1, 1]>(x, w)
    b = Mul(a, m)
    c = Mul(b, n)
    y = Conv<pads = [1, 1, 1, 1]>(c, w)
    z = ReduceMean<axes = [2, 3], keepdims = 0>(c)
}""".replace("<axes = [2, 3], keepdims = 0>(c)", "<keepdims = 0>(c, axes)").replace(
    "float[2,32] z)", "float[2,32] z) <int64[2] axes = {2, 3}>"
)


@needs_blocks
def test_what_meets_images_in_order_is_put_in_order() -> None:
    made = check(MASKED)
    assert made.count("blocked ReorderInput") == 2 + 2, "x and c, filters, but neither m nor n"
    assert made.count("blocked ReorderOutput") == 2, "a and y"


def test_views_as_filters_do_not_ask_for_order() -> None:
    text = (
        FILTERS.replace("(x, images)", "(p, images)")
        .replace("i = ", "p = Conv<pads = [1, 1, 1, 1]>(x, w)\n    i = ")
        .replace("f = Reshape(dy,", "f = Reshape(p,")
        .replace("dy)", "dy, float[32,32,3,3] w)")
    )
    blocked = blocked_program(section(text), 16)
    assert blocked is not None
    made = operators(blocked)
    assert made.count("blocked ReorderInput") == 2, "x and w"
    assert made.count("blocked ReorderOutput") == 1, "c"


FILTERS = """g (float[2,32,8,8] x, float[2,32,8,8] dy) => (float[2,32,3,3] y)
<int64[4] images = {1, 64, 8, 8}, int64[4] filters = {64, 1, 8, 8}, int64[4] whole = {2, 32, 3, 3}>
{
    i = Reshape(x, images)
    f = Reshape(dy, filters)
    c = Conv<group = 64, pads = [1, 1, 1, 1]>(i, f)
    y = Reshape(c, whole)
}"""


LAST = """g (float[2,32,5,7] x, float[32,32,3,3] w, float[2,16,6,7] u)
    => (float[2,5,7,32] y, float[2,5,7,32] z, float[2,6,7,16] v, float[32,2,5,7] s)
{
    a = Conv<pads = [1, 1, 1, 1]>(x, w)
    y = Transpose<perm = [0, 2, 3, 1]>(a)
    b = Relu(y)
    z = Neg(b)
    v = Transpose<perm = [0, 2, 3, 1]>(u)
    s = Transpose<perm = [1, 0, 2, 3]>(a)
}"""


@needs_blocks
def test_channels_come_out_of_blocks_side_by_side() -> None:
    made = check(LAST)
    assert made.count("blocked ReorderOutput") == 3, "y, v, and a, which s reads"
    assert made.count("Transpose") == 1, "s"
    assert made.count("Gather") == 1, "the filters"


PARTS = """g (float[2,32,6,4] x, float[32,32,3,3] w)
    => (float[2,32,6,4] y, float[2,8,6,4] z, float[2,32,6,8] u, float[2,32,12,4] t)
<int64[1] none = {0}, int64[1] half = {32}, int64[1] all = {64}, int64[1] channels = {1},
 int64[1] eight = {8}, int64[2] odd = {1, 0}, int64[2] end = {100, 100}, int64[2] axes = {-2, 3},
 int64[2] steps = {2, 1}, int64[4] rows = {2, 32, 12, 2}>
{
    a = Conv<pads = [1, 1, 1, 1]>(x, w)
    b = Concat<axis = 1>(a, x)
    c = Slice(b, half, all, channels)
    z = Slice(b, none, eight, channels)
    u = Concat<axis = 3>(c, a)
    d = Slice(a, odd, end, axes, steps)
    e = Concat<axis = -2>(d, d)
    r = Reshape(e, rows)
    t = Concat<axis = 3>(r, r)
    f = Add(e, c)
    y = Conv<pads = [1, 1, 1, 1]>(f, w)
}"""


@needs_blocks
def test_images_are_joined_and_cut_in_blocks() -> None:
    made = check(PARTS)
    assert made.count("blocked ReorderInput") == 1 + 2, "x and filters"
    assert made.count("blocked ReorderOutput") == 4, "y, u, t, and b, of which z is no whole block"


@needs_blocks
def test_images_as_filters_are_put_into_blocks_as_images() -> None:
    made = check(FILTERS)
    assert made.count("blocked ReorderInput") == 2
    assert "Transpose" not in made


def test_what_a_subgraph_captures_is_in_order() -> None:
    text = """g (float[2,32,8,8] x, float[32,32,3,3] w, bool c) => (float[2,32,8,8] y)
    {
        a = Conv<pads = [1, 1, 1, 1]>(x, w)
        y = If (c) <
            then_branch = t () => (float[2,32,8,8] p) { p = Neg(a) },
            else_branch = e () => (float[2,32,8,8] q) { q = Identity(a) }
        >
    }"""
    blocked = blocked_program(section(text), 16)
    assert blocked is not None
    assert operators(blocked)[-2:] == ["blocked ReorderOutput", "If"]
