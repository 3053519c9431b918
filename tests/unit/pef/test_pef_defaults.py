"""Defaults that bring their shape: what is written is read, anything else is refused."""

from __future__ import annotations

import struct

import pytest

import pef
from pef.defaults import decode, encode

FLOAT, STRING, INT4 = 1, 8, 22


def symbol(dtype: int = FLOAT, shape: pef.symbols.Shape = ("n",)) -> pef.Symbol:
    return pef.Symbol("x", pef.SymbolKind.INPUT, dtype, shape, pef.dtypes.spelling(dtype))


def numbers(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def head(*values: int) -> bytes:
    return numbers(*values).ljust(64, b"\0")


@pytest.mark.parametrize("declared", [("n", 3), (None, 3), (2, "m"), None])
def test_numbers_come_back(declared: pef.symbols.Shape) -> None:
    content = bytes(range(24))
    found = decode(memoryview(encode((2, 3), content)), symbol(shape=declared))
    assert found.shape == (2, 3)
    assert bytes(found.elements) == content


@pytest.mark.parametrize(
    ("shape", "texts"),
    [((3,), ("ß", "", "a\0")), ((), ("word",)), ((0,), ()), ((2, 1), ("", ""))],
)
def test_strings_come_back(shape: tuple[int, ...], texts: tuple[str, ...]) -> None:
    stored = memoryview(encode(shape, texts))
    assert decode(stored, symbol(STRING, None)) == (shape, texts)


def test_the_form_of_numbers() -> None:
    assert encode((3,), b"\x21\x03") == head(1, 3) + b"\x21\x03"
    assert len(decode(memoryview(head(1, 3) + b"\x21\x03"), symbol(INT4)).elements) == 2


def test_the_form_of_strings() -> None:
    assert encode((2,), ["ab", "ß"]) == head(1, 2) + numbers(2, 2) + "abß".encode()


def test_elements_are_aligned_whatever_the_rank() -> None:
    stored = encode((1,) * 9, b"1234")
    assert len(stored) == 128 + 4
    assert bytes(decode(memoryview(stored), symbol(shape=None)).elements) == b"1234"


@pytest.mark.parametrize(
    ("data", "kind", "says"),
    [
        (b"", symbol(), "no shape that fits"),
        (numbers(1), symbol(), "no shape that fits"),
        (head(-1), symbol(), "no shape that fits"),
        (head(1 << 62), symbol(), "no shape that fits"),
        (head(1, -2), symbol(), "no shape that fits"),
        (head(2, 1, 1) + bytes(4), symbol(), "no shape that fits"),
        (head(1, 3) + bytes(12), symbol(shape=(2,)), "no shape that fits"),
        (head(1, 3) + bytes(8), symbol(), "has 8 bytes, its shape and type need 12"),
        (head(1, 1) + bytes(8), symbol(), "has 8 bytes, its shape and type need 4"),
        (numbers(1, 0), symbol(STRING), None),
        (head(1, 2) + numbers(1), symbol(STRING), "is not 2 strings"),
        (head(1, 1 << 60) + numbers(1), symbol(STRING), "strings"),
        (head(1, 2) + numbers(3, -1) + b"ab", symbol(STRING), "is not 2 strings"),
        (head(1, 1) + numbers(3) + b"ab", symbol(STRING), "is not 1 strings"),
        (head(1, 1) + numbers(1) + b"ab", symbol(STRING), "is not 1 strings"),
        (head(1, 1) + numbers(1) + b"\xff", symbol(STRING), "is not 1 strings"),
    ],
)
def test_anything_else_is_refused(data: bytes, kind: pef.Symbol, says: str | None) -> None:
    if says is None:
        assert decode(memoryview(data), kind) == ((0,), ())
        return
    with pytest.raises(pef.PefError, match=says):
        decode(memoryview(data), kind)
