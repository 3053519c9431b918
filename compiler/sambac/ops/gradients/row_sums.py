"""Sums of rows by index: the gradient of every gather, an embedding above all.

    total[i] = the sum of all rows[j] with index[j] = i

ScatterND with addition would be the operator for it, and it is wrong at random: its threads race
where an index repeats. ScatterElements runs on one thread, about 5 ns an element. So many rows are
sorted by index and summed by products with matrices of zeros and ones, which is exact, never races
and gives one value in every threading mode. Milliseconds on two cores (table, width, rows):

    form               1000, 64, 512   10000, 256, 2048   50257, 768, 1024   256, 128, 4096
    ScatterElements        0.15              3.6                14                2.7
    sorted blocks          0.08              1.0                 7                0.6
    (ScatterND, racing)    0.02              0.5                12                0.1

A product spreads what is no finite number over the rows of a block, in a step that is lost anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import prod

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of

from .rules import cast, constant_of, cut, dtype_of, reshape, surround, transpose, zeros

_FEW_ELEMENTS = 8192
"""Up to here the one thread of ScatterElements is done before the other forms have begun."""

_NARROW = 16
"""Rows up to this width take longer to sort than to add one by one."""

_BLOCK = 16
_ONE_BLOCK = 64
"""Rows in a block, and up to how many rows are one block."""

_TINY_TABLE = 64
"""Up to here a product with the whole one-hot matrix costs no more than one with its blocks."""


def sum_along(b: Editor, index: ir.Value, values: ir.Value, axis: int, count: int) -> ir.Value:
    """Return `values` summed by `index` along `axis`, which has `count` elements afterwards.

    `index` is int64 or int32 of shape [N], from -count to count - 1, and `values` has N elements
    along `axis`. An index that is constant and repeats nothing moves elements without a sum.
    """
    known = constant_of(index)
    if known is not None:
        known = known.astype(np.int64) % count
        if len(np.unique(known)) == len(known):
            return _placed(b, known, values, axis, count)
    shape = shape_of(values)
    order = [axis, *(i for i in range(len(shape)) if i != axis)]
    others = [shape[i] for i in order[1:]]
    rows = reshape(b, transpose(b, values, order), (shape[axis], prod(others)))
    total = reshape(b, sum_rows(b, _normal(b, index, count), rows, count), (count, *others))
    return transpose(b, total, sorted(range(len(shape)), key=order.__getitem__))


def sum_rows(b: Editor, index: ir.Value, rows: ir.Value, count: int) -> ir.Value:
    """Return [count, D]: `rows` [N, D] summed by `index`, int64 [N] from 0 to count - 1."""
    lines, width = shape_of(rows)
    if lines * width <= _FEW_ELEMENTS or width <= _NARROW:
        places = _in_columns(b, reshape(b, index, (lines, 1)), width)
        table = zeros(b, rows.dtype, (count, width))
        return b.op("ScatterElements", table, places, rows, axis=0, reduction="add")
    if count <= _TINY_TABLE:
        hot = b.op("Equal", np.arange(count)[:, None], reshape(b, index, (1, lines)))
        return b.op("MatMul", cast(b, hot, rows), rows)
    return _sorted_blocks(b, index, rows, count)


def _in_columns(b: Editor, column: ir.Value, width: int) -> ir.Value:
    """Return `column` [N, 1] as [N, width]; to expand few columns takes twice as long."""
    if 1 < width <= _NARROW:
        return b.op("Concat", *[column] * width, axis=1)
    return b.op("Expand", column, [shape_of(column)[0], width])


def _placed(b: Editor, index: np.ndarray, values: ir.Value, axis: int, count: int) -> ir.Value:
    """Return `values` at their places along `axis`, zeros elsewhere."""
    size = len(index)
    if size and (index == np.arange(index[0], index[0] + size)).all():
        start = int(index[0])
        return surround(b, values, {axis: (start, count - start - size)})
    source = np.full(count, size, np.int64)
    source[index] = np.arange(size)
    whole = values if size == count else surround(b, values, {axis: (0, 1)})
    return b.op("Gather", whole, source, axis=axis)


def _normal(b: Editor, index: ir.Value, count: int) -> ir.Value:
    """Return `index` as int64 from 0 to count - 1: ONNX's Mod has the sign of its divisor."""
    known = constant_of(index)
    if known is not None:
        return b.constant(known.astype(np.int64) % count)
    return b.op("Mod", wide(b, index), count)


def wide(b: Editor, index: ir.Value) -> ir.Value:
    """Return `index` as int64."""
    return index if index.dtype == ir.DataType.INT64 else b.op("Cast", index, to=ir.DataType.INT64)


def _sorted_blocks(b: Editor, index: ir.Value, rows: ir.Value, count: int) -> ir.Value:
    """Return the sums by way of sorted blocks.

    1. Rows are sorted by index and cut into blocks of B. Every row becomes the sum of the rows of
       its index in its block: a product with the matrix of equal pairs, [B, B].
    2. An index in several blocks is the first or the last of each. The first and last rows of all
       blocks, sorted as they are, go through step 1 in turn, until there is one block.
    3. Every row of the table takes the last sum of its index, or zeros: one Gather, so that the
       table is written only once.
    """
    lines, width = shape_of(rows)
    keys, places = b.ops("TopK", index, [lines], outputs=2, axis=0, largest=0, sorted=1)
    levels = [_level(b, _Run(keys, b.op("Gather", rows, places, axis=0)), count)]
    while levels[-1].blocks > 1:
        levels.append(_level(b, _borders(b, levels[-1]), count))
    starts = [0, *accumulate(level.lines for level in levels)]
    source = b.op("ConstantOfShape", [count + 1], value=ir.tensor([starts[-1]]))
    for level, start in zip(levels, starts, strict=False):
        flat = reshape(b, level.keys, (level.lines,))
        numbers = np.arange(start, start + level.lines)
        source = b.op("ScatterElements", source, flat, numbers, axis=0)
    sums = [reshape(b, level.sums, (level.lines, width)) for level in levels]
    whole = b.op("Concat", *sums, zeros(b, rows.dtype, (1, width)), axis=0)
    return b.op("Gather", whole, cut(b, source, {0: (0, count)}), axis=0)


@dataclass(frozen=True)
class _Run:
    """Rows [N, D] sorted by `keys` [N]; `weights` [N] are 0 for rows that count nothing."""

    keys: ir.Value
    rows: ir.Value
    weights: ir.Value | None = None


@dataclass(frozen=True)
class _Level:
    """Blocks of a run: `keys` [K, B], and `sums` [K, B, D] by key within each block."""

    keys: ir.Value
    sums: ir.Value

    @property
    def blocks(self) -> int:
        """K."""
        return shape_of(self.keys)[0]

    @property
    def lines(self) -> int:
        """K * B."""
        return prod(shape_of(self.keys))


def _level(b: Editor, run: _Run, count: int) -> _Level:
    """Sum a run by key within blocks; `count` is the key of rows that fill up the last block."""
    lines, width = shape_of(run.rows)
    size = lines if lines <= _ONE_BLOCK else _BLOCK
    blocks = -(-lines // size)
    spare = blocks * size - lines
    keys = b.op("Pad", run.keys, [0, spare], count) if spare else run.keys
    keys = reshape(b, keys, (blocks, size))
    pairs = b.op("Equal", reshape(b, keys, (blocks, size, 1)), reshape(b, keys, (blocks, 1, size)))
    weights = cast(b, pairs, run.rows)
    if run.weights is not None:
        counts = surround(b, run.weights, {0: (0, spare)})
        weights = b.op("Mul", weights, reshape(b, counts, (blocks, 1, size)))
    rows = reshape(b, surround(b, run.rows, {0: (0, spare)}), (blocks, size, width))
    return _Level(keys, b.op("MatMul", weights, rows))


def _borders(b: Editor, level: _Level) -> _Run:
    """Return the first and last rows of all blocks.

    Where both have one key, both hold the same sum, and the first counts.
    """
    blocks, size, width = shape_of(level.sums)
    ends = [0, size - 1]
    keys = b.op("Gather", level.keys, ends, axis=1)
    rows = b.op("Gather", level.sums, ends, axis=1)
    same = b.op("Equal", cut(b, keys, {1: (0, 1)}), cut(b, keys, {1: (1, 2)}))
    ones = np.ones((blocks, 1), dtype_of(rows).numpy())
    weights = b.op("Concat", b.constant(ones), cast(b, b.op("Not", same), rows), axis=1)
    count = 2 * blocks
    return _Run(
        reshape(b, keys, (count,)), reshape(b, rows, (count, width)), reshape(b, weights, (count,))
    )
