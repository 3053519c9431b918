"""Queries behind a mask of the lowest number alone have the mean of all values, as in PyTorch."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from torch.nn import functional

import sambac
import sambarun
from sambac.passes.legalize.finite_masks import FiniteMasks
from sambac.passes.legalize.infer_shapes import InferShapes

LOWEST = float(np.finfo(np.float32).min)
rng = np.random.default_rng(4)
FEEDS = {name: rng.normal(size=(2, 4, 5, 8)).astype(np.float32) for name in "qkv"}


def masked(*values: float) -> np.ndarray:
    """A mask whose rows hold these numbers one after the other, the first of them 0 and one."""
    mask = np.zeros((1, 1, 5, 5), np.float32)
    mask[..., 1, :] = values[0]
    mask[..., 2, 2:] = values[0]
    mask[..., 3, :] = [*values, *values, *values, *values, *values][:5]
    return mask


def by_torch(mask: np.ndarray) -> np.ndarray:
    q, k, v = (torch.from_numpy(FEEDS[name]) for name in "qkv")
    found = functional.scaled_dot_product_attention(q, k, v, torch.from_numpy(mask))
    return found.numpy()


class Attends(torch.nn.Module):
    """Attention behind a mask that it is given."""

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor
    ) -> torch.Tensor:
        return functional.scaled_dot_product_attention(q, k, v, m)


class Remembers(torch.nn.Module):
    """Attention behind a mask of its own."""

    def __init__(self, mask: np.ndarray) -> None:
        super().__init__()
        self.register_buffer("mask", torch.from_numpy(mask))

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(q, k, v, self.get_buffer("mask"))


@pytest.mark.parametrize("values", [(LOWEST,), (LOWEST, -np.inf), (-np.inf,), (-1e30,)])
@pytest.mark.parametrize("known", [False, True])
def test_rows_of_the_lowest_number_have_the_mean(values: tuple[float, ...], known: bool) -> None:
    mask = masked(*values)
    module = Remembers(mask) if known else Attends()
    feeds = FEEDS if known else {**FEEDS, "m": mask}
    model = sambac.compile(module, inputs=tuple(map(torch.from_numpy, feeds.values())))
    with sambarun.load(model) as executable:
        (found,) = executable.run(feeds).values()
    np.testing.assert_allclose(found, by_torch(mask), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16])
@pytest.mark.parametrize("rows", [5, 1])
def test_an_onnx_attention_has_the_mean(rows: int, kind: int) -> None:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    name = {np.float32: "float", np.float16: "float16"}[dtype.type]
    heads = f"{name}[2,4,5,8]"
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 23]>
        g ({heads} q, {heads} k, {heads} v, {name}[1,1,{rows},5] m) => ({heads} y)
        {{ y = Attention (q, k, v, m) }}"""
    )
    result = ir.serde.deserialize_model(model)
    InferShapes()(result)
    FiniteMasks()(result)
    feeds = {each: array.astype(dtype) for each, array in FEEDS.items()}
    feeds["m"] = np.full((1, 1, 5, 5), np.finfo(dtype).min, dtype)
    model.graph.input[3].type.tensor_type.shape.dim[2].dim_value = 5
    result.graph.inputs[3].shape = ir.Shape([1, 1, 5, 5])
    session = onnxruntime.InferenceSession(ir.to_proto(result).SerializeToString())
    (found,) = session.run(None, feeds)
    wanted = np.broadcast_to(FEEDS["v"].mean(axis=2, keepdims=True), found.shape)
    np.testing.assert_allclose(found, wanted, rtol=4e-3, atol=4e-3)


def test_a_mask_that_is_known_to_be_higher_stays() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 23]>
        g (float[2,4,2,8] q, float[2,4,2,8] k, float[2,4,2,8] v) => (float[2,4,2,8] y)
        <float[1,2] m = {-1e30, 0}> { y = Attention (q, k, v, m) }"""
    )
    result = ir.serde.deserialize_model(model)
    InferShapes()(result)
    FiniteMasks()(result)
    assert [node.op_type for node in result.graph] == ["Attention"]
