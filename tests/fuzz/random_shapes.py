"""Operators of random models that change shapes and ranks, and those that broadcast them again."""

from __future__ import annotations

import numpy as np
from random_builder import Builder


def reshape(b: Builder) -> None:
    b.reshape(b.pick(), None)


def reshape_by_shape(b: Builder) -> None:
    x = b.pick()
    (shape,) = b.node("Shape", [x.name])
    flat = b.add("Reshape", [x.name, b.ints([-1])], [int(np.prod(x.shape))])
    b.add("Reshape", [flat.name, shape], x.shape)


def transpose(b: Builder) -> None:
    x = b.pick()
    perm = [int(axis) for axis in b.rng.permutation(len(x.shape))]
    b.add("Transpose", [x.name], [x.shape[axis] for axis in perm], perm=perm)


def shuffle(b: Builder) -> None:
    """Deal the channels out to groups and collect them again."""
    x = b.pick(4)
    n, c, h, w = x.shape
    groups = [size for size in range(1, c + 1) if c % size == 0]
    group = groups[int(b.rng.integers(len(groups)))]
    split = b.add("Reshape", [x.name, b.ints([n, group, -1, h, w])], (n, group, c // group, h, w))
    order = [0, 2, 1, 3, 4]
    moved = b.add("Transpose", [split.name], (n, c // group, group, h, w), perm=order)
    b.add("Reshape", [moved.name, b.ints(x.shape)], x.shape)


def concat(b: Builder) -> None:
    x = b.pick()
    if np.prod(x.shape) > 2000:
        return
    axis = int(b.rng.integers(len(x.shape)))
    parts = [x] * int(b.rng.integers(1, 4))
    shape = list(x.shape)
    shape[axis] *= len(parts)
    b.add("Concat", [part.name for part in parts], shape, axis=axis)


def pad(b: Builder) -> None:
    x = b.pick()
    if b.opset < 11 or np.prod(x.shape) > 2000:
        return
    amounts = [int(b.rng.random() < 0.15) for _ in range(2 * len(x.shape))]
    ends = [size + sum(amounts[i :: len(x.shape)]) for i, size in enumerate(x.shape)]
    b.add("Pad", [x.name, b.ints(amounts)], ends)


def expand(b: Builder) -> None:
    """Repeat along axes of one element, and add axes in front, of one element too."""
    x = b.pick()
    front = [int(size) for size in b.rng.integers(1, 3, int(b.rng.integers(3)))]
    grown = [size if size > 1 else int(b.rng.integers(1, 3)) for size in x.shape]
    if len(front) + len(grown) > 5 or np.prod([*front, *grown]) > 2000:
        return
    expanded = b.add("Expand", [x.name, b.ints([*front, *grown])], [*front, *grown])
    if b.rng.random() < 0.5:
        operands = [expanded.name, x.name]
        b.rng.shuffle(operands)
        b.add(str(b.rng.choice(["Add", "Mul", "Max"])), operands, expanded.shape)


def reduce(b: Builder) -> None:
    """Reduce along axes, and let others broadcast what is left along them again."""
    x = b.pick()
    rank = len(x.shape)
    axes = sorted(int(axis) for axis in b.rng.permutation(rank)[: int(b.rng.integers(1, 3))])
    keep = int(b.rng.random() < 0.7) or int(len(axes) == rank)
    left = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
    if not keep:
        left = [size for axis, size in enumerate(x.shape) if axis not in axes]
    op = str(b.rng.choice(["ReduceMax", "ReduceMean", "ReduceMin"]))
    reduced = b.add(op, [x.name], left, axes=axes, keepdims=keep)
    if keep and b.rng.random() < 0.6:
        b.add(str(b.rng.choice(["Add", "Sub", "Min"])), [x.name, reduced.name], x.shape)


def part(b: Builder) -> None:
    """Take a part along an axis, or one element without the axis."""
    x = b.pick()
    axis = int(b.rng.integers(len(x.shape)))
    size = x.shape[axis]
    start = int(b.rng.integers(size))
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    if len(x.shape) > 1 and b.rng.random() < 0.4:
        at = b.constant(np.asarray(start - size * int(b.rng.integers(2)), np.int64))
        b.add("Gather", [x.name, at], [*before, *after], axis=axis)
    elif b.opset >= 10:
        ends, step = int(b.rng.integers(start + 1, size + 1)), int(b.rng.integers(1, 3))
        given = [b.ints([number]) for number in (start, ends, axis, step)]
        b.add("Slice", [x.name, *given], [*before, len(range(start, ends, step)), *after])


def batches(b: Builder) -> None:
    """Multiply matrices by those of another batch, whose axes are ones or missing."""
    x = b.pick(int(b.rng.integers(2, 5)))
    out, inner = int(b.rng.integers(1, 6)), x.shape[-1]
    front = [size if b.rng.random() < 0.6 else 1 for size in x.shape[:-2]]
    front = front[int(b.rng.integers(len(front) + 1)) :]
    (other,) = b.node("Tanh", [b.random((*front, inner, out), -1 / inner, 1 / inner)])
    b.add("MatMul", [x.name, other], (*x.shape[:-1], out))
