"""Operators whose kernels in onnxruntime do wrong with what is left out or counts from the end."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from near import assert_near

import sambac
import sambarun

LEVELS = ("O0", "O1", "O3")
Arrays = dict[str, np.ndarray]


def _results(text: str, feeds: Arrays, level: str, opset: int = 18) -> Arrays:
    opsets = f'"": {opset}, "com.microsoft": 1'
    model = onnx.parser.parse_model(f"<ir_version: 9, opset_import: [{opsets}]> g {text}")
    program = sambac.compile(model, sambac.CompileOptions(level=level))
    with sambarun.load(program) as executable:
        return executable.run(feeds)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("policy", "size"), [("stretch", (2, 9)), ("not_larger", (2, 3)), ("not_smaller", (6, 9))]
)
@pytest.mark.parametrize("constant", [False, True])
def test_axes_of_a_resize_count_from_the_end(
    constant: bool, policy: str, size: tuple[int, int], level: str
) -> None:
    """The kernel left 4 by 6 as they were, for whichever policy keeps the ratio of sides."""
    x = np.arange(24, dtype=np.float32).reshape(1, 1, 4, 6)
    picture = "" if constant else "float[1, 1, 4, 6] x, "
    made = "n = Constant <value_float = 23.0> ()" if constant else ""
    text = f"""({picture} float z) => (y, w) <int64[2] sizes = {{2, 9}}> {{
        {made} w = Neg(z)
        y = Resize <mode = "nearest", axes = [-2, -1], keep_aspect_ratio_policy = "{policy}",
            coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (x, , , sizes)
    }}"""
    if constant:
        listed = ", ".join(map(str, range(24)))
        text = text.replace("> {", f", float[1, 1, 4, 6] x = {{{listed}}}> {{", 1)
    feeds = {"z": np.zeros((), np.float32)} | ({} if constant else {"x": x})
    found = _results(text, feeds, level)["y"]
    rows, columns = (
        [int(place * old / new) for place in range(new)]
        for old, new in zip((4, 6), size, strict=True)
    )
    np.testing.assert_array_equal(found, x[:, :, rows][..., columns])


@pytest.mark.parametrize("level", LEVELS)
def test_fused_attention_without_a_bias(level: str) -> None:
    """The kernel reads the bias whether or not there is one."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 3, 8)), rng.standard_normal((8, 24))
    text = """(float[2, 3, 8] x, float[8, 24] w) => (y)
        { y = com.microsoft.Attention <num_heads = 2> (x, w) }"""
    feeds = {"x": x.astype(np.float32), "w": w.astype(np.float32)}
    found = _results(text, feeds, level)["y"]
    query, key, value = (
        part.reshape(2, 3, 2, 4).swapaxes(1, 2) for part in np.split(x @ w, 3, axis=-1)
    )
    scores = np.exp(query @ key.swapaxes(2, 3) / 2)
    mixed = scores / scores.sum(axis=-1, keepdims=True) @ value
    assert_near(found, mixed.swapaxes(1, 2).reshape(2, 3, 8))


@pytest.mark.parametrize("level", LEVELS)
def test_keys_grow_by_those_of_a_step(level: str) -> None:
    """Where the past has a known length, more comes back: 5 and 1."""
    rng = np.random.default_rng(0)
    shapes = {"q": (1, 1, 32), "k": (1, 1, 16), "v": (1, 1, 16)}
    shapes |= {"old_k": (1, 1, 5, 16), "old_v": (1, 1, 5, 16)}
    feeds: Arrays = {
        name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
    }
    feeds |= {"last": np.array([5], np.int32), "total": np.array(6, np.int32)}
    inputs = ", ".join(f"float[{', '.join(map(str, s))}] {n}" for n, s in shapes.items())
    text = f"""({inputs}, int32[1] last, int32 total) => (y, new_k, new_v) {{
        y, new_k, new_v = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 1>
            (q, k, v, old_k, old_v, last, total)
    }}"""
    found = _results(text, feeds, level)
    for name in "kv":
        step = feeds[name].reshape(1, 1, 1, 16)
        wanted = np.concatenate([feeds[f"old_{name}"], step], axis=2)
        np.testing.assert_array_equal(found[f"new_{name}"], wanted)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize(("reduction", "first"), [("add", 6), ("mul", 5), ("max", 5), ("min", 1)])
def test_half_precision_is_scattered_with_a_reduction(
    reduction: str, first: float, index: str, level: str
) -> None:
    """Neither indices of int32 nor numbers of 16 bits keep it from running."""
    text = f"""(float16[3] x, {index}[2] at, float16[2] u) => (y)
        {{ y = ScatterElements <reduction = "{reduction}"> (x, at, u) }}"""
    feeds = {
        "x": np.array([1, 2, 3], np.float16),
        "at": np.array([0, -1], index),
        "u": np.array([5, 3], np.float16),
    }
    last = {"add": 6, "mul": 9}.get(reduction, 3)
    found = _results(text, feeds, level)["y"]
    np.testing.assert_array_equal(found, np.array([first, 2, last], np.float16))


STRINGS = np.array([f"s{i}" for i in range(12)], object)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("sizes", ["2, 2, 3", "A, B, C", None])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("at", [[1, -2], [[0]], 1])
def test_rows_of_strings_are_gathered(
    at: object, axis: int, sizes: str | None, constant: bool, level: str
) -> None:
    """The kernel copies the first string of each row alone."""
    words = STRINGS.reshape(2, 2, 3)
    indices = np.array(at, np.int64)
    shape = f"[{', '.join(map(str, indices.shape))}]" if indices.ndim else ""
    model = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["": 18]> g (string[{sizes or ""}] x, int64{shape} i)
        => (y, n) {{ y = Gather <axis = {axis}> (x, i)  n = Neg(i) }}"""
    )
    if sizes is None:
        model.graph.input[0].type.tensor_type.ClearField("shape")
    feeds = {"x": words, "i": indices}
    if constant:
        listed = [word.encode() for word in STRINGS]
        tensor = onnx.helper.make_tensor("x", onnx.TensorProto.STRING, words.shape, listed)
        model.graph.initializer.append(tensor)
        del model.graph.input[0], feeds["x"]
    program = sambac.compile(model, sambac.CompileOptions(level=level))
    with sambarun.load(program) as executable:
        found = executable.run(feeds)["y"]
    np.testing.assert_array_equal(found, np.take(words, indices, axis))


def test_rows_of_strings_before_ranges_are_refused() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 5, opset_import: ["": 10]> g (string[2, 3] x, int64[1] i) => (y)
        { y = Gather(x, i) }"""
    )
    with pytest.raises(sambac.CompileError, match="export the model with opset 11"):
        sambac.compile(model)


@pytest.mark.parametrize("kind", ["int8", "uint16"])
def test_sequences_without_a_kernel_are_refused(kind: str) -> None:
    """A wider type would be that of the sequence, too, which no cast makes narrow again."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["": 18]> g ({kind}[4] x) => (n)
        {{ s = SplitToSequence(x)  n = SequenceLength(s) }}"""
    )
    with pytest.raises(sambac.CompileError, match="SplitToSequence"):
        sambac.compile(model)


@pytest.mark.parametrize("level", LEVELS)
def test_products_of_bytes_without_a_zero(level: str) -> None:
    text = """(uint8[2, 3] a, uint8[3, 2] b, float s) => (y)
        { y = com.microsoft.MatMulIntegerToFloat(a, b, s, s) }"""
    a, b = (np.arange(100, 106, dtype=np.uint8).reshape(shape) for shape in ((2, 3), (3, 2)))
    found = _results(text, {"a": a, "b": b, "s": np.array(0.5, np.float32)}, level)["y"]
    np.testing.assert_array_equal(found, a.astype(np.float32) @ b.astype(np.float32) / 4)


def test_a_table_of_unknown_zeros_is_refused() -> None:
    """The kernel reads them before it runs, and ends the process."""
    text = """(bool[2] c, uint8[2] a, float s, uint8 z) => (y) <float one = {1}, uint8 no = {0}>
        { y = com.microsoft.QLinearWhere(c, a, s, z, a, s, z, one, no) }"""
    with pytest.raises(sambac.CompileError, match="operands 3 and 6 are no constants"):
        _results(text, {}, "O3")


@pytest.mark.parametrize("level", LEVELS)
def test_sums_over_the_axes_of_an_ellipsis(level: str) -> None:
    """The kernel has none: it failed in a run."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 1, 4))
    text = """(float[2, 3, 4] x, float[2, 1, 4] y) => (z)
        { z = Einsum <equation = "...i,...i->i"> (x, y) }"""
    feeds = {"x": x.astype(np.float32), "y": y.astype(np.float32)}
    assert_near(_results(text, feeds, level)["z"], np.einsum("abi,abi->i", x, np.tile(y, (3, 1))))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("heads", "sizes"),
    [
        ("", ("2, 4, 1, 8", "2, 4, S, 8")),
        ("<q_num_heads = 4, kv_num_heads = 4>", ("2, 1, 32", "2, S, 32")),
    ],
)
def test_attention_gives_scores_of_any_number_of_keys(
    heads: str, sizes: tuple[str, str], level: str
) -> None:
    """The library and onnxruntime take the open number for 0."""
    one, all_ = sizes
    text = f"""(float[{one}] q, float[{all_}] k, float[{all_}] v) => (y, scores, read)
        {{ y, , , scores = Attention {heads} (q, k, v) read = Shape(scores) }}"""
    rng = np.random.default_rng(0)
    shapes = {"q": one, "k": all_.replace("S", "3"), "v": all_.replace("S", "3")}
    feeds = {
        name: rng.standard_normal([*map(int, shape.split(","))]).astype(np.float32)
        for name, shape in shapes.items()
    }
    found = _results(text, feeds, level, opset=23)
    q, k = (
        feeds[name].astype(np.float64).reshape(2, -1, 4, 8).swapaxes(1, 2) if heads else feeds[name]
        for name in ("q", "k")
    )
    assert_near(found["scores"], q @ k.swapaxes(2, 3) / np.sqrt(8))
    np.testing.assert_array_equal(found["read"], [2, 4, 1, 3])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("interleaved", [0, 1])
def test_examples_share_angles_of_rotary_embeddings(interleaved: int, level: str) -> None:
    """PyTorch exports one row for each place; the kernel wants as many as examples."""
    text = f"""(float[B, 3, L, 4] x, float[1, L, 2] c, float[1, L, 2] s) => (y)
        {{ y = RotaryEmbedding <interleaved = {interleaved}> (x, c, s) }}"""
    rng = np.random.default_rng(0)
    x, c, s = (rng.standard_normal(size) for size in ((2, 3, 5, 4), (1, 5, 2), (1, 5, 2)))
    feeds = {"x": x, "c": c, "s": s}
    found = _results(text, {k: v.astype(np.float32) for k, v in feeds.items()}, level, opset=23)
    one, two = (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., :2], x[..., 2:])
    parts = (c * one - s * two, s * one + c * two)
    expected = np.stack(parts, -1).reshape(x.shape) if interleaved else np.concatenate(parts, -1)
    assert_near(found["y"], expected)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("sizes", [(), (3,), (2, 3)])
@pytest.mark.parametrize("power", [2.0, 4.0])
def test_deviations_of_any_number_of_axes(power: float, sizes: tuple[int, ...], level: str) -> None:
    """Of a number there is no Concat, which keeps others from being taken for a normalisation."""
    x = np.linspace(0.5, 2, 6, dtype=np.float32)[: int(np.prod(sizes))]
    axes = ", last" if sizes else ""
    text = f"""(float[n] x, int64[k] s) => (y)
        <float p = {{{power}}}, float e = {{0.5}}, int64[1] last = {{-1}}> {{
        d = Reshape (x, s) q = Pow (d, p) m = ReduceMean (q{axes}) a = Add (m, e) r = Sqrt (a)
        y = Div (d, r) }}"""
    found = _results(text, {"x": x, "s": np.array(sizes, np.int64)}, level)["y"]
    exact = x.reshape(sizes).astype(np.float64)
    mean = (exact**power).mean(-1, keepdims=True) if sizes else exact**power
    assert_near(found, exact / np.sqrt(mean + 0.5))
