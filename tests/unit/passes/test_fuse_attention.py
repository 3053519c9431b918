"""Attention that is spelled out becomes one operator on tokens, of the same numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from sambac.passes.pipelines import LEGALIZE, SELECT_KERNELS, SIMPLIFY

rng = np.random.default_rng(3)
SIZES = {"B": 2, "L": 5, "S": 7, "T": 5}


@dataclass(frozen=True)
class Form:
    """A model: shapes of its inputs, how heads, scores, shares and the result are written."""

    shapes: str
    scores: str
    shares: str = "p = Softmax <axis = -1> (s)"
    opset: int = 20
    heads: str = (
        "qh = Transpose <perm = [0, 2, 1, 3]> (q)  kh = Transpose <perm = [0, 2, 3, 1]> (k)"
        "  vh = Transpose <perm = [0, 2, 1, 3]> (v)"
    )
    mix: str = "o = MatMul (p, vh)"

    def model(self) -> onnx.ModelProto:
        opsets = f'"" : {self.opset}, "com.microsoft" : 1'
        return onnx.parser.parse_model(
            f"<ir_version: 9, opset_import: [{opsets}]>"
            f" attention ({self.shapes}) => (float[A,B,C] y)"
            f"<int64[3] flat = {{0, 0, -1}}, float half = {{0.5}}, float two = {{2}}>"
            f"{{ {self.heads}  {self.scores}  {self.shares}  {self.mix}"
            "  t = Transpose <perm = [0, 2, 1, 3]> (o)  y = Reshape (t, flat) }"
        )


FOUR = "float[2,5,4,8] q, float[2,7,4,8] k, float[2,7,4,6] v"
PLAIN = "z = MatMul (qh, kh)  s = Mul (z, half)"
MASKED = "z = MatMul (qh, kh)  z2 = Mul (z, half)  s = Add (z2, m)"
GUARDED = (
    "zero = Sub (half, half)  p0 = Softmax <axis = -1> (s)  n0 = IsNaN (p0)"
    "  p = Where (n0, zero, p0)"
)
FOUR_IN_TWO = "float[2,5,4,8] q, float[2,7,2,8] k, float[2,7,2,6] v"
COPIED = (
    "qh = Transpose <perm = [0, 2, 1, 3]> (q)"
    "  kt = Transpose <perm = [0, 2, 1, 3]> (k)  ku = Unsqueeze (kt, two_i)"
    "  ke = Expand (ku, ks)  kr = Reshape (ke, kf)  kx = Transpose <perm = [0, 2, 1]> (kr)"
    "  kh = Reshape (kx, kb)  vt = Transpose <perm = [0, 2, 1, 3]> (v)"
    "  vu = Unsqueeze (vt, two_i)  ve = Expand (vu, vs)  vh = Reshape (ve, vf)"
)
NUMBERS = {
    "two_i": [2],
    "ks": [2, 2, 2, 7, 8],
    "kf": [8, 7, 8],
    "kb": [2, 4, 8, 7],
    "vs": [2, 2, 2, 7, 6],
    "vf": [2, 4, 7, 6],
}
CONSTANTS = "".join(
    f"{name} = Constant <value_ints = {values}> ()  " for name, values in NUMBERS.items()
)
GROUPED = (
    "qt = Transpose <perm = [0, 2, 1, 3]> (q)  wide = Constant <value_ints = [2, 2, 10, 8]> ()"
    "  qh = Reshape (qt, wide)  kh = Transpose <perm = [0, 2, 3, 1]> (k)"
    "  vh = Transpose <perm = [0, 2, 1, 3]> (v)  apart = Constant <value_ints = [2, 4, 5, 7]> ()"
    "  together = Constant <value_ints = [2, 2, 10, 7]> ()"
)
OPEN = "float[B,T,4,8] q, float[B,S,4,8] k, float[B,S,4,6] v"
TURNED = (
    "qt = Transpose <perm = [0, 2, 1, 3]> (q)  kt = Transpose <perm = [0, 2, 1, 3]> (k)"
    "  qh = com.microsoft.RotaryEmbedding <interleaved = {0}> (qt, first, c, d)"
    "  kp = com.microsoft.RotaryEmbedding <interleaved = {0}> (kt, first, c, d)"
    "  kh = Transpose <perm = [0, 1, 3, 2]> (kp)  vh = Transpose <perm = [0, 2, 1, 3]> (v)"
)
TABLES = "int64[1] first, float[9,4] c, float[9,4] d"
FUSED = {
    "plain": Form(FOUR, PLAIN),
    "of opset 17": Form(FOUR, PLAIN, opset=17),
    "of opset 23": Form(FOUR, PLAIN, opset=23),
    "divided": Form(FOUR, "z = MatMul (qh, kh)  s = Div (z, two)"),
    "not scaled": Form(FOUR, "s = MatMul (qh, kh)"),
    "scaled on both sides": Form(
        FOUR, "q2 = Mul (qh, half)  k2 = Mul (half, kh)  s = MatMul (q2, k2)"
    ),
    "keys turned twice": Form(
        FOUR,
        PLAIN,
        heads="qh = Transpose <perm = [0, 2, 1, 3]> (q)  kt = Transpose <perm = [0, 2, 1, 3]> (k)"
        "  kh = Transpose <perm = [0, 1, 3, 2]> (kt)  vh = Transpose <perm = [0, 2, 1, 3]> (v)",
    ),
    **{
        f"mask of {shape}": Form(f"{FOUR}, float[{shape}] m", MASKED, GUARDED)
        for shape in ("5,7", "1,5,7", "4,5,7", "1,1,5,7", "2,1,5,7", "2,4,5,7", "2,1,1,7", "1,7")
    },
    "mask of whole numbers": Form(
        f"{FOUR}, int64[2,1,1,7] m",
        "c = Cast <to = 1> (m)  one = Add (half, half)  far = Constant <value_float = -3.4e38> ()"
        "  r = Sub (one, c)  n = Mul (r, far)  z = MatMul (qh, kh)  s = Add (z, n)",
    ),
    "shared heads": Form(FOUR_IN_TWO, PLAIN, heads=CONSTANTS + COPIED),
    "shared heads behind a mask": Form(
        f"{FOUR_IN_TWO}, float[2,1,5,7] m", MASKED, GUARDED, heads=CONSTANTS + COPIED
    ),
    "open sizes": Form(OPEN, PLAIN),
    "open sizes behind a mask": Form(f"{OPEN}, float[B,1,T,S] m", MASKED, GUARDED),
    "halves turned": Form(f"{FOUR}, {TABLES}", PLAIN, heads=TURNED.format(0)),
    "halves turned by a scale of one": Form(
        f"{FOUR}, {TABLES}", PLAIN, heads=TURNED.format("0, scale = 1.0")
    ),
    "neighbours turned": Form(f"{FOUR}, {TABLES}", PLAIN, heads=TURNED.format(1)),
}
OWN = "o = Attention <{}> (qh, kh, vh{})"
ON_HEADS = "".join(f"{x}h = Transpose <perm = [0, 2, 1, 3]> ({x})  " for x in "qkv")
HEADS_OF_TOKENS = {
    "an operator of heads": Form(FOUR, "", "", 23, ON_HEADS, OWN.format("is_causal = 0", "")),
    "one that says its heads twice": Form(
        FOUR, "", "", 23, ON_HEADS, OWN.format("q_num_heads = 4, kv_num_heads = 4", "")
    ),
    "one that looks back alone": Form(
        FOUR, "", "", 23, ON_HEADS, OWN.format("is_causal = 1, scale = 0.5", "")
    ),
    "one behind a mask": Form(
        f"{FOUR}, float[2,1,5,7] m", "", "", 24, ON_HEADS, OWN.format("softcap = 2.0", ", m")
    ),
    "one behind a mask of truths": Form(
        f"{FOUR}, bool[5,7] m", "", "", 23, ON_HEADS, OWN.format("scale = 0.25", ", m")
    ),
}
KEPT = {
    "a negative scale": Form(FOUR, "n = Neg (half)  z = MatMul (qh, kh)  s = Mul (z, n)"),
    "shares of queries": Form(FOUR, PLAIN, "p = Softmax <axis = -2> (s)"),
    "a mask that may be infinite": Form(f"{FOUR}, float[2,1,5,7] m", MASKED),
    "a mask of one column": Form(f"{FOUR}, float[2,1,5,1] m", MASKED, GUARDED),
    "a mask that makes more of it": Form(
        FOUR.replace("[2,", "[1,") + ", float[2,1,5,7] m", MASKED, GUARDED
    ),
    "queries of one example for all": Form(FOUR.replace("[2,5", "[1,5"), PLAIN),
    "keys of one example for all": Form(FOUR.replace("[2,7", "[1,7"), PLAIN),
    "values of one example for all": Form(FOUR.replace("[2,7,4,6", "[1,7,4,6"), PLAIN),
    "groups of heads as a result": Form(FOUR_IN_TWO, "s = MatMul (qh, kh)", heads=GROUPED),
    "groups of heads that are mixed": Form(
        FOUR_IN_TWO,
        "z = MatMul (qh, kh)  s = Reshape (z, apart)",
        "g = Softmax <axis = -1> (s)  p = Reshape (g, together)",
        heads=GROUPED,
    ),
    "values that are scaled": Form(FOUR, PLAIN, mix="w = Mul (vh, half)  o = MatMul (p, w)"),
    "an older opset": Form(FOUR, PLAIN, opset=12),
    "an operator that changed": Form(
        FOUR,
        PLAIN,
        opset=17,
        heads="w = ReduceMean <axes = [1]> (q)  d = Sub (q, w)"
        "  qh = Transpose <perm = [0, 2, 1, 3]> (d)  kh = Transpose <perm = [0, 2, 3, 1]> (k)"
        "  vh = Transpose <perm = [0, 2, 1, 3]> (v)",
    ),
}


def compiled(model: onnx.ModelProto) -> tuple[onnx.ModelProto, Counter[str]]:
    result = ir.serde.deserialize_model(model)
    for step in (*LEGALIZE, *SIMPLIFY, *SELECT_KERNELS):
        step(result)
    return ir.to_proto(result), Counter(node.op_type for node in result.graph)


def feeds_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    feeds = {}
    for port in model.graph.input:
        dims = [d.dim_value or SIZES[d.dim_param] for d in port.type.tensor_type.shape.dim]
        kind = onnx.helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type)
        feeds[port.name] = (
            rng.normal(size=dims).astype(kind)
            if kind == np.float32
            else rng.integers(0, 2, dims).astype(kind)
        )
    if "first" in feeds:
        feeds["first"][:] = 1
    if "m" in feeds and feeds["m"].ndim > 1 and feeds["m"].dtype != np.float32:
        feeds["m"][..., 0] = 1  # each query sees something
    return feeds


def agree(model: onnx.ModelProto, found: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> None:
    wanted, actual = (
        onnxruntime.InferenceSession(each.SerializeToString()).run(None, feeds)[0]
        for each in (model, found)
    )
    np.testing.assert_allclose(actual, wanted, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("form", FUSED.values(), ids=FUSED)
def test_it_becomes_one_operator_of_the_same_numbers(form: Form) -> None:
    model = form.model()
    found, counts = compiled(model)
    assert counts["Attention"] == 1
    assert not counts.keys() & {"Softmax", "MatMul", "FusedMatMul", "Transpose"}
    assert found.opset_import[0].version == max(form.opset, 23)
    agree(model, found, feeds_of(model))


@pytest.mark.parametrize("form", HEADS_OF_TOKENS.values(), ids=HEADS_OF_TOKENS)
def test_an_operator_of_heads_reads_tokens(form: Form) -> None:
    model = form.model()
    found, counts = compiled(model)
    assert counts["Attention"] == 1
    assert not counts["Transpose"]
    agree(model, found, feeds_of(model))


@pytest.mark.parametrize("form", KEPT.values(), ids=KEPT)
def test_what_the_kernel_has_not_stays(form: Form) -> None:
    model = form.model()
    found, counts = compiled(model)
    assert not counts["Attention"]
    agree(model, found, feeds_of(model))


def test_shares_that_are_read_elsewhere_stay() -> None:
    model = FUSED["plain"].model()
    model.graph.output.append(onnx.helper.make_tensor_value_info("p", 1, [2, 4, 5, 7]))
    _, counts = compiled(model)
    assert not counts["Attention"]


def test_scores_that_are_made_once_for_all_steps_stay() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["": 20]>
        g (float[2,5,4,8] q, float[2,7,4,8] k, float[3,2,7,4,6] v) => (float[3,2,5,4,6] y) {
            qh = Transpose <perm = [0, 2, 1, 3]> (q)  kh = Transpose <perm = [0, 2, 3, 1]> (k)
            s = MatMul (qh, kh)
            y = Scan <num_scan_inputs = 1, body = step (float[2,7,4,6] x) => (float[2,5,4,6] t) {
                xh = Transpose <perm = [0, 2, 1, 3]> (x)  p = Softmax <axis = -1> (s)
                o = MatMul (p, xh)  t = Transpose <perm = [0, 2, 1, 3]> (o)
            }> (v)
        }"""
    )
    found, counts = compiled(model)
    assert counts["MatMul"] + counts["FusedMatMul"] == 1
    agree(model, found, feeds_of(model))


@pytest.mark.parametrize("hidden", [-np.inf, np.finfo(np.float32).min, -1e30])
@pytest.mark.parametrize("name", ["mask of 2,1,5,7", "mask of 2,1,1,7"])
def test_queries_that_see_no_key_have_what_they_had(name: str, hidden: float) -> None:
    model = FUSED[name].model()
    found, _ = compiled(model)
    feeds = feeds_of(model)
    feeds["m"][0] = np.float32(hidden)
    feeds["m"][1, ..., 2:] = np.float32(hidden)
    agree(model, found, feeds)


def test_a_finite_mask_without_a_guard_keeps_the_mean_of_values() -> None:
    form = FUSED["mask of whole numbers"]
    model = form.model()
    (far,) = (node for node in model.graph.node if node.output[0] == "far")
    far.attribute[0].f = float(np.finfo(np.float32).min)
    found, counts = compiled(model)
    assert counts["Attention"] == 1
    feeds = feeds_of(model)
    feeds["m"][0] = 0
    agree(model, found, feeds)
