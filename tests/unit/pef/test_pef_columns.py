"""Columns refuse to be longer or shorter than their table, and texts and members out of range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import pef
from pef.columns import (
    NONE,
    Column,
    Enums,
    Flags,
    Lists,
    Numbers,
    OptionalIndices,
    Pairs,
    Pool,
    Rows,
    Shapes,
    Texts,
    decode_texts,
    row_count,
)

PORT = Rows(pef.Port, {"name": Texts(), "symbol": Numbers("<u4")})
REF = Rows(
    pef.DataRef,
    {"segment": Numbers("<u4"), "offset": Numbers("<u8"), "size": Numbers("<u8")},
    optional=True,
)
COLUMNS: list[tuple[Column, Sequence[Any]]] = [
    (Numbers("<i4"), [-1, 2]),
    (OptionalIndices(), [None, 0]),
    (Flags(), [True, False]),
    (Texts(), ["a", "ü"]),
    (Enums(pef.SectionType), [pef.SectionType.FWD, pef.SectionType.OPT]),
    (PORT, [pef.Port("a", 1), pef.Port("a", 2)]),
    (REF, [None, pef.DataRef(0, 2**64 - 1, 0)]),
    (Pairs(Texts(), Numbers("<u4")), [("a", 1), ("b", 2)]),
    (Lists(Texts(), "item"), [("a", "b"), ()]),
    (Lists(PORT), [(), (pef.Port("a", 1),)]),
    (Shapes(), [(1, "n", None), None]),
]


@pytest.mark.parametrize(("column", "values"), COLUMNS)
def test_there_and_back(column: Column, values: Sequence[Any]) -> None:
    pool = Pool()
    node = column.encode(values, pool)
    texts = decode_texts(pool.encode())
    assert row_count(node) == len(values)
    assert column.decode(node, len(values), texts) == values
    for rows in (len(values) - 1, len(values) + 1):
        with pytest.raises(pef.PefError, match="is damaged"):
            column.decode(node, rows, texts)


def test_texts_are_stored_once_in_order_of_use() -> None:
    pool = Pool()
    assert [pool.index(text) for text in ("b", "a", "b", "")] == [0, 1, 0, 2]
    assert decode_texts(pool.encode()) == ["b", "a", ""]


def test_what_is_out_of_range() -> None:
    with pytest.raises(pef.PefError, match="a flag is neither yes nor no"):
        Flags().decode(np.array([1, 2], "<u1"), 2, [])
    with pytest.raises(pef.PefError, match="it has only 1 texts"):
        Texts().decode(np.array([1], "<u4"), 1, ["a"])
    shape = {
        "rank": np.array([1], "<i2"),
        "size": np.array([-1], "<i8"),
        "name": np.array([1], "<u4"),
    }
    with pytest.raises(pef.PefError, match="it has only 1 texts"):
        Shapes().decode(shape, 1, ["a"])
    shape["name"][0] = NONE
    assert Shapes().decode(shape, 1, ["a"]) == [(None,)]
    with pytest.raises(pef.PefError, match="has an unknown SectionType: 6"):
        Enums(pef.SectionType).decode(np.array([6], "<u1"), 1, [])


def test_texts_that_are_not_utf8() -> None:
    broken = {"size": np.array([1], "<u4"), "utf8": np.array([0xFF], "<u1")}
    with pytest.raises(pef.PefError, match="a text is not UTF-8"):
        decode_texts(broken)


def test_a_shape_of_too_many_dimensions() -> None:
    with pytest.raises(OverflowError):
        Shapes().encode([(1,) * (1 << 15)], Pool())
