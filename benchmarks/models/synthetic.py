"""Graphs made for one question each: much weight, many operators, many tiny steps."""

from __future__ import annotations

import random

import numpy as np
import onnx

from benchmarks.models.build import FLOAT, INT64, GraphBuilder

_IDS = 64
WIDTH = 16  # columns of the small tensors in the graphs of many operators


def heavy(layers: int = 24, width: int = 2048, batch: int = 16, seed: int = 0) -> onnx.ModelProto:
    """Residual layers of MatMul, LayerNormalization and Add: 400 MB of weights by default.

    Input `x` and output `y` are float32, batch x width.
    """
    g = GraphBuilder(seed)
    value = "x"
    for index in range(layers):
        name = f"layer.{index}"
        weight = g.random(f"{name}.weight", (width, width), width**-0.5)
        scale = g.random(f"{name}.norm.weight", (width,), 0.05, mean=1.0)
        bias = g.random(f"{name}.norm.bias", (width,), 0.05)
        product = g.op("MatMul", value, weight, scope=f"/{name}")
        normal = g.op("LayerNormalization", product, scale, bias, scope=f"/{name}", axis=-1)
        value = g.op("Add", normal, value, scope=f"/{name}")
    return g.model("heavy", {"x": (FLOAT, (batch, width))}, {"y": (value, (batch, width))})


def chain(operators: int, seed: int = 0) -> onnx.ModelProto:
    """A deep graph of exactly `operators` nodes: blocks of four with a residual connection.

    Input `x` and output `y` are float32 of shape 4x16.
    """
    g = GraphBuilder(seed)
    weights = [g.random(f"weight.{index}", (WIDTH, WIDTH), 0.2) for index in range(8)]
    value = skipped = "x"
    for index in range(operators):
        scope = f"/block.{index // 4}"
        match index % 4:
            case 0:
                value = g.op("MatMul", value, weights[index // 4 % 8], scope=scope)
            case 1:
                value = g.op("Tanh", value, scope=scope)
            case 2:
                value = g.op("Mul", value, g.constant("scale", 0.5), scope=scope)
            case _:
                value = skipped = g.op("Add", value, skipped, scope=scope)
    return g.model("chain", {"x": (FLOAT, (4, WIDTH))}, {"y": (value, (4, WIDTH))})


def wide(operators: int, branches: int = 64, seed: int = 0) -> onnx.ModelProto:
    """A wide graph of about `operators` nodes: parallel branches, joined at the end.

    Input `x` and output `y` are float32 of shape 4x16. Neighbouring branches exchange values
    every eighth step, so that the graph is no collection of independent chains.
    """
    g = GraphBuilder(seed)
    weights = [g.random(f"weight.{index}", (WIDTH, WIDTH), 0.2) for index in range(8)]
    values = ["x"] * branches
    for step in range((operators - branches) // branches):
        scope = f"/step.{step}"
        if step % 8 == 7:
            pairs = zip(values, values[1:] + values[:1], strict=True)
            values = [g.op("Add", left, right, scope=scope) for left, right in pairs]
        elif step % 2:
            values = [g.op("Tanh", value, scope=scope) for value in values]
        else:
            weight = weights[step % 8]
            values = [g.op("MatMul", value, weight, scope=scope) for value in values]
    total = values[0]
    for value in values[1:]:
        total = g.op("Add", total, value, scope="/join")
    return g.model("wide", {"x": (FLOAT, (4, WIDTH))}, {"y": (total, (4, WIDTH))})


def tangled(operators: int, seed: int = 0) -> onnx.ModelProto:
    """A random graph of about `operators` products, sums and picked rows, 32 to 1024 wide.

    Input `ids` has 64 numbers of rows, output `y` is float32, 64x8. Values are read where they
    are made and far behind, so that much that is small and large lives at once.
    """
    g = GraphBuilder(seed)
    dice = random.Random(seed)
    made: list[tuple[str, int]] = []
    for index in range(operators):
        scope = f"/op.{index}"
        width = 2 ** dice.randint(5, 10)
        if index < 2 or dice.random() < 0.1:
            table = g.random(f"table.{index}", (2 ** dice.randint(6, 12), width), 1.0)
            made.append((g.op("Gather", table, "ids", scope=scope), width))
            continue
        near = dice.random() < 0.7
        value, columns = dice.choice(made[-3:] if near else made)
        equal = [other for other, size in made if size == columns and other != value]
        if equal and dice.random() < 0.3:
            made.append((g.op("Add", value, dice.choice(equal), scope=scope), columns))
        else:
            weight = g.random(f"weight.{index}", (columns, width), columns**-0.5)
            product = g.op("MatMul", value, weight, scope=scope)
            made.append((g.op("Tanh", product, scope=scope), width))
    ends = [
        g.op("MatMul", value, g.random(f"end.{index}", (columns, 8), columns**-0.5), scope="/end")
        for index, (value, columns) in enumerate(made)
    ]
    total = ends[0]
    for value in ends[1:]:
        total = g.op("Add", total, value, scope="/end")
    return g.model("tangled", {"ids": (INT64, (_IDS,))}, {"y": (total, (_IDS, 8))})


def tiny_sections(count: int = 100) -> onnx.ModelProto:
    """A chain of `count` operators on 16 numbers each, so that sections cost all the time.

    Input `x` and output `y` are float32 of shape 16. Every other operator is a Neg, so that no
    algebra merges the additions.
    """
    g = GraphBuilder()
    value = "x"
    for index in range(count):
        if index % 2:
            value = g.op("Neg", value, scope=f"/step.{index}")
        else:
            shift = g.random(f"shift.{index}", (WIDTH,), 1.0)
            value = g.op("Add", value, shift, scope=f"/step.{index}")
    return g.model("tiny", {"x": (FLOAT, (WIDTH,))}, {"y": (value, (WIDTH,))})


def small_input(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Random float32 values for the one input of a graph of this module."""
    (value,) = model.graph.input
    shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
    rng = np.random.default_rng(seed)
    return {value.name: rng.standard_normal(shape, dtype=np.float32)}
