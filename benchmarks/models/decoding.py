"""A decoder that makes one token from those before it, whose keys and values it is given."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from numpy.typing import NDArray

from benchmarks.models.build import FLOAT, INT64, GraphBuilder
from benchmarks.models.transformers import Shape

DECODER_100M = Shape(layers=12, hidden=768, heads=12, length=128, vocabulary=20_000)
"""100 million parameters, of which 15 million are a table that is the head, too."""


def decoder(shape: Shape = DECODER_100M, seed: int = 0) -> onnx.ModelProto:
    """One step of a decoder, opset 20.

    Inputs `token` (int64, [1, 1]) and for each layer `keys.N` and `values.N` (float32, [1, heads,
    length - 1, head size]); outputs `logits` (float32, [1, 1, vocabulary]) and the keys and values
    with those of the token behind them, `present_keys.N` and `present_values.N`. Normalisation
    comes first, Gelu is the operator of opset 20, and the head is the table of the embedding.
    """
    g = GraphBuilder(seed)
    table = g.random("wte.weight", (shape.vocabulary, shape.hidden), 0.2)
    hidden = g.op("Gather", table, "token", scope="/wte")
    inputs: dict[str, tuple[int, tuple[int, ...]]] = {"token": (INT64, (1, 1))}
    outputs: dict[str, tuple[str, tuple[int, ...]]] = {}
    head = shape.hidden // shape.heads
    past, present = ((1, shape.heads, shape.length - at, head) for at in (1, 0))
    for index in range(shape.layers):
        hidden, kept = _layer(g, shape, hidden, index)
        for name, value in kept.items():
            inputs[f"{name}.{index}"] = (FLOAT, past)
            outputs[f"present_{name}.{index}"] = (value, present)
    hidden = _normal(g, shape, hidden, "ln_f")
    logits = g.op("MatMul", hidden, g.op("Transpose", table, scope="/head"), scope="/head")
    return g.model(
        "decoder",
        inputs,
        {"logits": (logits, (1, 1, shape.vocabulary)), **outputs},
        opset=20,
    )


def decoder_inputs(
    model: onnx.ModelProto, seed: int = 0
) -> Mapping[str, NDArray[np.float32] | NDArray[np.int64]]:
    """A token, and keys and values of a normal distribution."""
    rng = np.random.default_rng(seed)
    shapes = {
        port.name: [dim.dim_value for dim in port.type.tensor_type.shape.dim]
        for port in model.graph.input
    }
    feeds = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    return {**feeds, "token": np.asarray([[7]], np.int64)}


def _layer(g: GraphBuilder, shape: Shape, hidden: str, index: int) -> tuple[str, dict[str, str]]:
    """Attention to all tokens so far and a feed-forward part; also the keys and values."""
    scope, size = f"/h.{index}", shape.hidden
    normal = _normal(g, shape, hidden, f"h.{index}.ln_1")
    query, key, value = (
        _heads(g, shape, _linear(g, normal, f"h.{index}.{part}", size, size), scope)
        for part in ("query", "key", "value")
    )
    keys = g.op("Concat", f"keys.{index}", key, scope=scope, axis=2)
    values = g.op("Concat", f"values.{index}", value, scope=scope, axis=2)
    turned = g.op("Transpose", keys, scope=scope, perm=[0, 1, 3, 2])
    scores = g.op("MatMul", query, turned, scope=scope)
    scale = g.constant("scale", (shape.heads / size) ** 0.5)
    weights = g.op("Softmax", g.op("Mul", scores, scale, scope=scope), scope=scope, axis=-1)
    mixed = g.op("Transpose", g.op("MatMul", weights, values, scope=scope), perm=[0, 2, 1, 3])
    merged = g.op("Reshape", mixed, g.constant("merged", (1, 1, size), np.int64), scope=scope)
    hidden = g.op("Add", hidden, _linear(g, merged, f"h.{index}.out", size, size), scope=scope)
    normal = _normal(g, shape, hidden, f"h.{index}.ln_2")
    wide = g.op("Gelu", _linear(g, normal, f"h.{index}.up", size, 4 * size), approximate="tanh")
    down = _linear(g, wide, f"h.{index}.down", 4 * size, size)
    return g.op("Add", hidden, down, scope=scope), {"keys": keys, "values": values}


def _heads(g: GraphBuilder, shape: Shape, value: str, scope: str) -> str:
    sizes = g.constant("heads", (1, 1, shape.heads, shape.hidden // shape.heads), np.int64)
    return g.op("Transpose", g.op("Reshape", value, sizes, scope=scope), perm=[0, 2, 1, 3])


def _linear(g: GraphBuilder, value: str, name: str, rows: int, columns: int) -> str:
    weight = g.random(f"{name}.weight", (rows, columns), rows**-0.5)
    bias = g.random(f"{name}.bias", (columns,), 0.02)
    return g.op("Add", g.op("MatMul", value, weight, scope=f"/{name}"), bias, scope=f"/{name}")


def _normal(g: GraphBuilder, shape: Shape, value: str, name: str) -> str:
    scale = g.random(f"{name}.weight", (shape.hidden,), 0.05, mean=1.0)
    bias = g.random(f"{name}.bias", (shape.hidden,), 0.05)
    return g.op("LayerNormalization", value, scale, bias, scope=f"/{name}", axis=-1, epsilon=1e-5)
