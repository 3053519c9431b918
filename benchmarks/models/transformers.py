"""A BERT-like encoder and a GPT-like decoder with random weights, as PyTorch exports them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray

from benchmarks.models.build import INT64, GraphBuilder


@dataclass(frozen=True)
class Shape:
    """The size of a transformer; `hidden` is divisible by `heads`."""

    layers: int
    hidden: int
    heads: int
    length: int
    vocabulary: int
    batch: int = 1


BERT_BASE_4 = Shape(layers=4, hidden=768, heads=12, length=128, vocabulary=30522)
GPT_SMALL = Shape(layers=4, hidden=512, heads=8, length=128, vocabulary=8192)


def bert(shape: Shape = BERT_BASE_4, seed: int = 0) -> onnx.ModelProto:
    """An encoder with a pooler, opset 17.

    Inputs `input_ids`, `attention_mask`, `token_type_ids` (int64, batch x length); outputs
    `last_hidden_state` (float32, batch x length x hidden) and `pooler_output` (batch x hidden).
    Attention divides by the root of the head size, Gelu is written with Erf.
    """
    g = GraphBuilder(seed)
    hidden = _bert_embeddings(g, shape)
    mask = _padding_mask(g)
    for index in range(shape.layers):
        scope, prefix = f"/encoder/layer.{index}", f"encoder.layer.{index}"
        attended = _attention(g, shape, hidden, mask, (f"{scope}/attention", f"{prefix}.attention"))
        added = g.op("Add", attended, hidden, scope=f"{scope}/attention/output")
        hidden = _layer_norm(g, shape, added, f"{prefix}.attention.output.LayerNorm")
        wide = _linear(g, hidden, f"{prefix}.intermediate.dense", shape.hidden, 4 * shape.hidden)
        active = _erf_gelu(g, wide, f"{scope}/intermediate")
        narrow = _linear(g, active, f"{prefix}.output.dense", 4 * shape.hidden, shape.hidden)
        added = g.op("Add", narrow, hidden, scope=f"{scope}/output")
        hidden = _layer_norm(g, shape, added, f"{prefix}.output.LayerNorm")
    first = g.op("Gather", hidden, g.constant("zero", 0, np.int64), scope="/pooler", axis=1)
    weight = g.random("pooler.dense.weight", (shape.hidden, shape.hidden), shape.hidden**-0.5)
    bias = g.random("pooler.dense.bias", (shape.hidden,), 0.02)
    pooled = g.op("Gemm", first, weight, bias, scope="/pooler/dense", transB=1)
    pooled = g.op("Tanh", pooled, scope="/pooler/activation")
    size = (shape.batch, shape.length)
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = dict.fromkeys(names, (INT64, size))
    outputs = {
        "last_hidden_state": (hidden, (*size, shape.hidden)),
        "pooler_output": (pooled, (shape.batch, shape.hidden)),
    }
    return g.model("bert", inputs, outputs)


def gpt(shape: Shape = GPT_SMALL, seed: int = 0) -> onnx.ModelProto:
    """A decoder with a causal mask and a language-model head, opset 20.

    Input `input_ids` (int64, batch x length); output `logits` (float32, batch x length x
    vocabulary). One matrix makes queries, keys and values, normalisation comes first, and Gelu
    is the operator of opset 20.
    """
    g = GraphBuilder(seed)
    positions = g.constant("positions", np.arange(shape.length)[None], np.int64)
    table = g.random("transformer.wte.weight", (shape.vocabulary, shape.hidden), 0.2)
    places = g.random("transformer.wpe.weight", (shape.length, shape.hidden), 0.1)
    tokens = g.op("Gather", table, "input_ids", scope="/transformer/wte")
    offsets = g.op("Gather", places, positions, scope="/transformer/wpe")
    hidden = g.op("Add", tokens, offsets, scope="/transformer")
    for index in range(shape.layers):
        hidden = _gpt_block(g, shape, hidden, index)
    hidden = _layer_norm(g, shape, hidden, "transformer.ln_f")
    head = g.random("lm_head.weight", (shape.hidden, shape.vocabulary), shape.hidden**-0.5)
    logits = g.op("MatMul", hidden, head, scope="/lm_head")
    inputs = {"input_ids": (INT64, (shape.batch, shape.length))}
    outputs = {"logits": (logits, (shape.batch, shape.length, shape.vocabulary))}
    return g.model("gpt", inputs, outputs, opset=20)


def token_inputs(
    model: onnx.ModelProto, shape: Shape, seed: int = 0
) -> Mapping[str, NDArray[np.int64]]:
    """Random token ids, a mask that pads the last eighth, and two token types."""
    rng = np.random.default_rng(seed)
    size = (shape.batch, shape.length)
    makers: dict[str, Callable[[], NDArray[np.int64]]] = {
        "input_ids": lambda: rng.integers(0, shape.vocabulary, size),
        "attention_mask": lambda: np.broadcast_to(
            (np.arange(shape.length) < shape.length * 7 // 8).astype(np.int64), size
        ).copy(),
        "token_type_ids": lambda: rng.integers(0, 2, size),
    }
    return {value.name: makers[value.name]() for value in model.graph.input}


def _bert_embeddings(g: GraphBuilder, shape: Shape) -> str:
    """Words, token types and positions, added and normalised."""
    total = ""
    positions = g.constant("embeddings.position_ids", np.arange(shape.length)[None], np.int64)
    tables = (
        ("word", shape.vocabulary, "input_ids"),
        ("token_type", 2, "token_type_ids"),
        ("position", shape.length, positions),
    )
    for kind, rows, ids in tables:
        table = g.random(f"embeddings.{kind}_embeddings.weight", (rows, shape.hidden), 0.5)
        part = g.op("Gather", table, ids, scope=f"/embeddings/{kind}_embeddings")
        total = g.op("Add", total, part, scope="/embeddings") if total else part
    return _layer_norm(g, shape, total, "embeddings.LayerNorm")


def _padding_mask(g: GraphBuilder) -> str:
    """0 where attention may look, the smallest float where not; batch x 1 x 1 x length."""
    axes = g.constant("mask_axes", [1, 2], np.int64)
    mask = g.op("Unsqueeze", "attention_mask", axes)
    mask = g.op("Cast", mask, to=onnx.TensorProto.FLOAT)
    hidden = g.op("Sub", g.constant("one", 1.0), mask)
    return g.op("Mul", hidden, g.constant("lowest", np.finfo(np.float32).min))


def _attention(
    g: GraphBuilder, shape: Shape, hidden: str, mask: str, names: tuple[str, str]
) -> str:
    """Self-attention with separate query, key and value matrices, and its output matrix."""
    scope, prefix = names
    parts = {
        part: _linear(g, hidden, f"{prefix}.self.{part}", shape.hidden, shape.hidden)
        for part in ("query", "key", "value")
    }
    scores = g.op(
        "MatMul",
        _split_heads(g, shape, parts["query"], scope),
        _split_heads(g, shape, parts["key"], scope, keys=True),
        scope=f"{scope}/self",
    )
    root = g.constant("root_head_size", math.sqrt(shape.hidden / shape.heads))
    scores = g.op("Div", scores, root, scope=f"{scope}/self")
    scores = g.op("Add", scores, mask, scope=f"{scope}/self")
    context = _weigh(g, shape, scores, _split_heads(g, shape, parts["value"], scope), scope)
    return _linear(g, context, f"{prefix}.output.dense", shape.hidden, shape.hidden)


def _gpt_block(g: GraphBuilder, shape: Shape, hidden: str, index: int) -> str:
    """One decoder layer: masked attention and a feed-forward part, each added to its input."""
    scope, prefix = f"/transformer/h.{index}", f"transformer.h.{index}"
    normal = _layer_norm(g, shape, hidden, f"{prefix}.ln_1")
    joined = _linear(g, normal, f"{prefix}.attn.c_attn", shape.hidden, 3 * shape.hidden)
    sizes = g.constant("split_sizes", [shape.hidden] * 3, np.int64)
    query, key, value = g.ops("Split", joined, sizes, scope=f"{scope}/attn", count=3, axis=2)
    query, value = (_split_heads(g, shape, part, f"{scope}/attn") for part in (query, value))
    key = _split_heads(g, shape, key, f"{scope}/attn", keys=True)
    scores = g.op("MatMul", query, key, scope=f"{scope}/attn")
    scale = g.constant("attention_scale", math.sqrt(shape.heads / shape.hidden))
    scores = g.op("Mul", scores, scale, scope=f"{scope}/attn")
    causal = np.tril(np.ones((1, 1, shape.length, shape.length), dtype=bool))
    allowed = g.constant("transformer.causal_mask", causal, np.bool_)
    lowest = g.constant("lowest", np.finfo(np.float32).min)
    scores = g.op("Where", allowed, scores, lowest, scope=f"{scope}/attn")
    context = _weigh(g, shape, scores, value, f"{scope}/attn")
    output = _linear(g, context, f"{prefix}.attn.c_proj", shape.hidden, shape.hidden)
    hidden = g.op("Add", output, hidden, scope=scope)
    normal = _layer_norm(g, shape, hidden, f"{prefix}.ln_2")
    wide = _linear(g, normal, f"{prefix}.mlp.c_fc", shape.hidden, 4 * shape.hidden)
    active = g.op("Gelu", wide, scope=f"{scope}/mlp", approximate="tanh")
    narrow = _linear(g, active, f"{prefix}.mlp.c_proj", 4 * shape.hidden, shape.hidden)
    return g.op("Add", hidden, narrow, scope=scope)


def _split_heads(
    g: GraphBuilder, shape: Shape, value: str, scope: str, *, keys: bool = False
) -> str:
    """Batch x length x hidden to batch x heads x length x head size; keys come transposed."""
    sizes = (shape.batch, shape.length, shape.heads, shape.hidden // shape.heads)
    split = g.op("Reshape", value, g.constant("head_shape", sizes, np.int64), scope=scope)
    return g.op("Transpose", split, scope=scope, perm=[0, 2, 3, 1] if keys else [0, 2, 1, 3])


def _weigh(g: GraphBuilder, shape: Shape, scores: str, values: str, scope: str) -> str:
    """The values weighed by the softmax of the scores, heads merged again."""
    weights = g.op("Softmax", scores, scope=scope, axis=-1)
    context = g.op("MatMul", weights, values, scope=scope)
    context = g.op("Transpose", context, scope=scope, perm=[0, 2, 1, 3])
    sizes = (shape.batch, shape.length, shape.hidden)
    return g.op("Reshape", context, g.constant("merged_shape", sizes, np.int64), scope=scope)


def _linear(g: GraphBuilder, value: str, name: str, rows: int, columns: int) -> str:
    """MatMul and Add, as a linear layer over three dimensions is exported."""
    weight = g.random(f"{name}.weight", (rows, columns), rows**-0.5)
    bias = g.random(f"{name}.bias", (columns,), 0.02)
    product = g.op("MatMul", value, weight, scope=f"/{name}")
    return g.op("Add", bias, product, scope=f"/{name}")


def _layer_norm(g: GraphBuilder, shape: Shape, value: str, name: str) -> str:
    """LayerNormalization over the last dimension."""
    scale = g.random(f"{name}.weight", (shape.hidden,), 0.05, mean=1.0)
    bias = g.random(f"{name}.bias", (shape.hidden,), 0.05)
    return g.op("LayerNormalization", value, scale, bias, scope=f"/{name}", axis=-1, epsilon=1e-12)


def _erf_gelu(g: GraphBuilder, value: str, scope: str) -> str:
    """Gelu operator by operator: x * (1 + erf(x / sqrt 2)) * 0.5."""
    inner = g.op("Div", value, g.constant("root_two", math.sqrt(2.0)), scope=scope)
    inner = g.op("Erf", inner, scope=scope)
    inner = g.op("Add", inner, g.constant("one", 1.0), scope=scope)
    product = g.op("Mul", value, inner, scope=scope)
    return g.op("Mul", product, g.constant("half", 0.5), scope=scope)
