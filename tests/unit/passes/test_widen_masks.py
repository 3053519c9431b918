"""Masks that attention broadcasts run, although onnxruntime's kernel refuses them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.passes.legalize.widen_masks import WidenMasks

rng = np.random.default_rng(5)


def attention(mask: tuple[int, ...], *, flat: bool, opset: int = 23) -> onnx.ModelProto:
    shapes = ("2,5,32", "2,7,32", "2,7,12") if flat else ("2,4,5,8", "2,4,7,8", "2,4,7,3")
    q, k, v = shapes
    heads = "<q_num_heads = 4, kv_num_heads = 4>" if flat else ""
    result = "2,5,12" if flat else "2,4,5,3"
    return onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": {opset}]>
        g (float[{q}] q, float[{k}] k, float[{v}] v, float[{",".join(map(str, mask))}] m)
        => (float[{result}] y) {{ y = Attention {heads} (q, k, v, m) }}"""
    )


def widened(model: onnx.ModelProto) -> ir.Model:
    result = ir.serde.deserialize_model(model)
    InferShapes()(result)
    WidenMasks()(result)
    return result


def feeds_of(model: onnx.ModelProto, known: dict[str, int]) -> dict[str, np.ndarray]:
    dims = {port.name: port.type.tensor_type.shape.dim for port in model.graph.input}
    sizes = {name: [d.dim_value or known[d.dim_param] for d in dims[name]] for name in dims}
    return {name: rng.normal(size=size).astype(np.float32) for name, size in sizes.items()}


@pytest.mark.parametrize("mask", [(2, 1, 1, 7), (1, 7), (5, 1), (2, 4, 5, 1), (1, 1)])
@pytest.mark.parametrize("flat", [False, True])
def test_a_mask_of_one_row_or_column_is_expanded(mask: tuple[int, ...], flat: bool):
    model, full = attention(mask, flat=flat), (*mask[:-2], 5, 7)
    feeds = feeds_of(model, {})
    wide = {**feeds, "m": np.broadcast_to(feeds["m"], full)}
    (expected,) = ReferenceEvaluator(attention(full, flat=flat)).run(None, wide)
    session = onnxruntime.InferenceSession(ir.to_proto(widened(model)).SerializeToString())
    (actual,) = session.run(None, feeds)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sizes", ["b,4,5,8", "b,4,t,8"])
@pytest.mark.parametrize("mask", ["b,1,1,7", "b,4,1,7", "1,7"])
def test_open_sizes_stay_open(sizes: str, mask: str):
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 23]>
        g (float[{sizes}] q, float[b,4,7,8] k, float[b,4,7,3] v, float[{mask}] m)
        => (float[b,4,r,3] y) {{ y = Attention (q, k, v, m) }}"""
    )
    feeds = feeds_of(model, {"b": 3, "t": 5})
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    session = onnxruntime.InferenceSession(ir.to_proto(widened(model)).SerializeToString())
    (actual,) = session.run(None, feeds)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("mask", ["b,1,r,7", "r,7"])
@pytest.mark.parametrize("queries", ["t", "5"])
def test_rows_whose_number_is_open_may_be_one(mask: str, queries: str, rows: int):
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 23]>
        g (float[b,4,{queries},8] q, float[b,4,7,8] k, float[b,4,7,3] v, float[{mask}] m)
        => (float[b,4,u,3] y) {{ y = Attention (q, k, v, m) }}"""
    )
    feeds = feeds_of(model, {"b": 3, "t": 5, "r": rows})
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    wide = widened(model)
    assert not WidenMasks()(wide).modified
    session = onnxruntime.InferenceSession(ir.to_proto(wide).SerializeToString())
    (actual,) = session.run(None, feeds)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mask", ["b,1,5,1", "t,1", "1,1"])
@pytest.mark.parametrize("layout", ["b,4,{},8", "b,{},32"])
def test_one_column_is_expanded_to_keys_whose_number_is_open(mask: str, layout: str):
    heads = "<q_num_heads = 4, kv_num_heads = 4>" if layout.count(",") == 2 else ""
    queries = "t" if mask[0] != "b" else "5"
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 23]>
        g (float[{layout.format(queries)}] q, float[{layout.format("s")}] k,
           float[{layout.format("s")}] v, float[{mask}] m)
        => (float[{layout.format("r")}] y) {{ y = Attention {heads} (q, k, v, m) }}"""
    )
    feeds = feeds_of(model, {"b": 3, "t": 5, "s": 7})
    wide = {**feeds, "m": np.broadcast_to(feeds["m"], (*feeds["m"].shape[:-2], 5, 7))}
    (expected,) = ReferenceEvaluator(model).run(None, wide)
    result = widened(model)
    assert not WidenMasks()(result).modified
    session = onnxruntime.InferenceSession(ir.to_proto(result).SerializeToString())
    (actual,) = session.run(None, feeds)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_columns_are_left_to_the_operator_where_it_pads_them():
    model = attention((5, 1), flat=False, opset=24)
    assert [node.op_type for node in widened(model).graph] == ["Attention"]


def test_a_cache_makes_the_mask_wider():
    model = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["": 23]>
        g (float[1,2,3,4] q, float[1,2,3,4] k, float[1,2,3,4] v, float[3,1] m,
           float[1,2,6,4] pk, float[1,2,6,4] pv) => (float[1,2,3,4] y)
        { y, a, b = Attention (q, k, v, m, pk, pv) }"""
    )
    WidenMasks()(model)
    mask = model.graph[-1].inputs[3]
    assert mask is not None
    assert mask.shape is not None
    assert mask.shape.numpy() == (3, 9)
