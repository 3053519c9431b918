"""Random ONNX models that are valid by construction.

Operators are drawn from a table of builders; each builder picks operands that fit among the
values made so far and knows the shape of what it makes. A model of `size` operators drawn from a
seed is a prefix of the larger ones, so that a failure can be made smaller by drawing less.
Numbers stay moderate, and no operator is discontinuous, where rounding would look like an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper
from random_builder import FLOAT, OPSETS, Builder, Tensor
from random_shapes import (
    batches,
    concat,
    expand,
    pad,
    part,
    reduce,
    reshape,
    reshape_by_shape,
    shuffle,
    transpose,
)


def unary(b: Builder) -> None:
    x = b.pick()
    op = b.rng.choice(["Relu", "Neg", "Abs", "Tanh", "Sigmoid", "Identity", "Dropout", "Softplus"])
    b.add(str(op), [x.name], x.shape)


def binary(b: Builder) -> None:
    x = b.pick()
    same = [value for value in b.values if value.shape == x.shape]
    y = same[int(b.rng.integers(len(same)))]
    op = str(b.rng.choice(["Add", "Sub", "Mul", "Max", "Min", "Sum", "Mean"]))
    b.add(op, [x.name, y.name], x.shape)


def with_constant(b: Builder) -> None:
    x = b.pick()
    op = str(b.rng.choice(["Add", "Sub", "Mul", "Div"]))
    shapes = [(), (1,), x.shape[-1:]]
    if len(x.shape) > 1:
        shapes.append((x.shape[1],) + (1,) * (len(x.shape) - 2))
    shape = shapes[int(b.rng.integers(len(shapes)))]
    if b.rng.random() < 0.2:
        neutral = 1 if op in ("Mul", "Div") else 0
        operand = b.constant(np.full(shape, neutral + b.rng.choice([0, 1]), np.float32))
    else:
        operand = b.random(shape, 0.5, 2)
    swap = op in ("Add", "Mul") and b.rng.random() < 0.3
    b.add(op, [operand, x.name] if swap else [x.name, operand], x.shape)


def add_many(b: Builder) -> None:
    x = b.pick()
    b.add("Sum", [x.name, x.name, b.random(x.shape)], x.shape)


def convolution(b: Builder) -> None:
    x = b.pick(4)
    n, c, h, w = x.shape
    kernel = 3 if min(h, w) >= 3 and b.rng.random() < 0.5 else 1
    group = c if b.rng.random() < 0.3 else 1
    out = c if group > 1 else int(b.rng.integers(1, 6))
    scale = 1 / np.sqrt(c // group * kernel * kernel)
    weight = _weight(b, (out, c // group, kernel, kernel), scale)
    inputs = [x.name, weight] + ([b.random((out,))] if b.rng.random() < 0.5 else [])
    pad = kernel // 2 if b.rng.random() < 0.7 else 0
    shape = (n, out, h + 2 * pad - kernel + 1, w + 2 * pad - kernel + 1)
    attributes = {"group": group, "pads": [pad] * 4, "kernel_shape": [kernel] * 2}
    b.add("Conv", inputs, shape, **attributes)


def _weight(b: Builder, shape: Sequence[int], scale: float) -> str:
    """Return random numbers, or now and then a ConstantOfShape."""
    if b.rng.random() < 0.8:
        return b.random(shape, -2 * scale, 2 * scale)
    fill = helper.make_tensor("", FLOAT, [1], [scale])
    return b.node("ConstantOfShape", [b.ints(shape)], value=fill)[0]


def normalization(b: Builder) -> None:
    x = b.pick(4)
    c = x.shape[1]
    parameters = [b.random((c,), low, 2) for low in (0.5, -1, -1, 0.5)]
    b.add("BatchNormalization", [x.name, *parameters], x.shape, epsilon=1e-3)


def pool(b: Builder) -> None:
    x = b.pick(4)
    n, c, h, w = x.shape
    if min(h, w) < 2:
        b.add("GlobalAveragePool", [x.name], (n, c, 1, 1))
        return
    op = str(b.rng.choice(["AveragePool", "MaxPool"]))
    b.add(op, [x.name], (n, c, h // 2, w // 2), kernel_shape=[2, 2], strides=[2, 2])


def response_normalization(b: Builder) -> None:
    x = b.pick(4)
    beta = float(b.rng.choice([0.5, 0.75, 1.0, 0.6]))
    b.add("LRN", [x.name], x.shape, size=int(b.rng.choice([1, 3, 5])), alpha=0.3, beta=beta)


def layer_normalization(b: Builder) -> None:
    x = b.pick()
    if b.opset < 17 or x.shape[-1] < 4:
        return unary(b)
    total = b.add("Add", [x.name, b.random(x.shape)], x.shape)
    b.add("LayerNormalization", [total.name, b.random(x.shape[-1:], 0.5, 2)], x.shape)
    return None


def power(b: Builder) -> None:
    x = b.pick()
    (bounded,) = b.node("Tanh", [x.name])
    b.add("Pow", [bounded, b.constant(np.float32(b.rng.choice([1, 2, 3])))], x.shape)


def cast(b: Builder) -> None:
    x = b.pick()
    (wide,) = b.node("Cast", [x.name], to=TensorProto.DOUBLE)
    b.add("Cast", [wide], x.shape, to=FLOAT)


def linear(b: Builder) -> None:
    x = b.pick(2)
    rows, columns = x.shape
    out = int(b.rng.integers(1, 8))
    scale = 1 / np.sqrt(columns)
    product = b.add("MatMul", [x.name, b.random((columns, out), -scale, scale)], (rows, out))
    b.add("Add", [b.random((out,)), product.name], (rows, out))


def constant_arithmetic(b: Builder) -> None:
    x = b.pick()
    (one,) = b.node("Add", [b.random(()), b.random(x.shape[-1:])])
    (two,) = b.node("Tanh", [one])
    b.add("Mul", [x.name, two], x.shape)


def softmax(b: Builder) -> None:
    x = b.pick()
    axis = len(x.shape) - 1 if b.opset < 13 else int(b.rng.integers(len(x.shape)))
    b.add("Softmax", [x.name], x.shape, axis=axis)


def branch(b: Builder) -> None:
    """If over a computed condition; both branches capture a value.

    It is never a Cast's: onnxruntime removes pairs of casts without looking at captures.
    """
    x = b.pick()
    x = b.add("Abs", [x.name], x.shape)
    (total,) = b.node("ReduceMax", [x.name], keepdims=0)
    (condition,) = b.node("Less", [total, b.constant(np.float32(0.5))])
    names = [b.name() for _ in range(4)]
    info = [helper.make_tensor_value_info(name, FLOAT, x.shape) for name in names]
    then = helper.make_graph(
        [
            helper.make_node("Identity", [x.name], [names[0]]),
            helper.make_node("Relu", [names[0]], [names[1]]),
        ],
        "then",
        [],
        [info[1]],
    )
    other = helper.make_graph(
        [
            helper.make_node("Neg", [x.name], [names[2]]),
            helper.make_node("Neg", [names[2]], [names[3]]),
        ],
        "else",
        [],
        [info[3]],
    )
    b.add("If", [condition], x.shape, then_branch=then, else_branch=other)


def repeat(b: Builder) -> None:
    """The last operator again, so that there is something to merge."""
    last, value = b.nodes[-1], b.values[-1]
    if value.name not in last.output or len(last.output) != 1:
        return
    copy = onnx.NodeProto()
    copy.CopyFrom(last)
    copy.output[0] = b.name()
    b.nodes.append(copy)
    b.values.append(Tensor(copy.output[0], value.shape))


BUILDERS: tuple[tuple[Callable[[Builder], None], float], ...] = (
    (unary, 3),
    (binary, 3),
    (with_constant, 4),
    (add_many, 1),
    (convolution, 4),
    (normalization, 2),
    (pool, 1),
    (response_normalization, 0.7),
    (layer_normalization, 1),
    (reshape, 2),
    (reshape_by_shape, 1),
    (transpose, 2),
    (shuffle, 0.7),
    (power, 0.5),
    (concat, 1),
    (cast, 0.5),
    (linear, 1.5),
    (pad, 0.5),
    (constant_arithmetic, 1),
    (expand, 1.5),
    (reduce, 1.5),
    (part, 1.5),
    (softmax, 1),
    (batches, 1.5),
    (branch, 0.5),
    (repeat, 1),
)


def random_model(seed: int, size: int) -> onnx.ModelProto:
    """Return a model of about `size` operators, the same for the same arguments."""
    rng = np.random.default_rng(seed)
    b = Builder(rng, int(rng.choice(OPSETS)))
    inputs = [Tensor("image", (2, 4, 6, 6)), Tensor("rows", (3, 8))]
    b.values.extend(inputs)
    unary(b)
    chances = np.asarray([chance for _, chance in BUILDERS])
    for _ in range(size):
        BUILDERS[int(rng.choice(len(BUILDERS), p=chances / chances.sum()))][0](b)
    return _finish(b, inputs)


def _finish(b: Builder, inputs: Sequence[Tensor]) -> onnx.ModelProto:
    """Give out what nothing reads, and one value from the middle."""
    read = {name for node in b.nodes for name in node.input}
    made = b.values[len(inputs) :]
    ends = [value for value in made if value.name not in read]
    middle = made[len(made) // 2]
    outputs = ends if middle in ends else [*ends, middle]
    graph = helper.make_graph(
        b.nodes,
        "random",
        [helper.make_tensor_value_info(value.name, FLOAT, value.shape) for value in inputs],
        [helper.make_tensor_value_info(value.name, FLOAT, value.shape) for value in outputs],
        b.weights,
    )
    opset = [helper.make_opsetid("", b.opset)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8)
