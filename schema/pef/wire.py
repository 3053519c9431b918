"""The protobuf wire format: just enough to read and write ONNX graphs without the onnx package.

What is read comes from a file, so nothing in it is believed: every varint and every length is
checked against the bytes that are there before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator

from .errors import PefError

VARINT = 0
FIXED64 = 1
BYTES = 2
FIXED32 = 5

_MAX_VARINT_BYTES = 10
_FIXED_SIZES = {FIXED64: 8, FIXED32: 4}

# A field as read: its number, its value (an int for a varint, else the content) and its raw bytes,
# tag included, for copying it unchanged.
Field = tuple[int, int | memoryview, memoryview]


def fields(message: memoryview) -> Iterator[Field]:
    """Yield the fields of `message` in order. Raises `PefError` where it is malformed."""
    position, end = 0, len(message)
    while position < end:
        start = position
        tag, position = _read_varint(message, position)
        kind = tag & 7
        value: int | memoryview
        if kind == BYTES:
            size, position = _read_varint(message, position)
            value, position = _read_bytes(message, position, size)
        elif kind == VARINT:
            value, position = _read_varint(message, position)
        elif kind in _FIXED_SIZES:
            value, position = _read_bytes(message, position, _FIXED_SIZES[kind])
        else:
            raise PefError(f"The program's graph is malformed: wire type {kind} at byte {start}.")
        yield tag >> 3, value, message[start:position]


def content(value: int | memoryview) -> memoryview:
    """Return `value` as the content of a length-delimited field, or raise `PefError`."""
    if isinstance(value, int):
        raise PefError("The program's graph is malformed: a number stands where bytes belong.")
    return value


def number(value: int | memoryview) -> int:
    """Return `value` as the number of a varint field, or raise `PefError`."""
    if not isinstance(value, int):
        raise PefError("The program's graph is malformed: bytes stand where a number belongs.")
    return value


def text(value: int | memoryview) -> str:
    """Return `value` as a string, or raise `PefError`."""
    try:
        return str(content(value), "utf-8")
    except UnicodeDecodeError as error:
        raise PefError("The program's graph is malformed: a name is not UTF-8.") from error


def varint(value: int) -> bytes:
    """Encode a number of at most 64 bits that is not negative."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def int_field(field: int, value: int) -> bytes:
    """Encode a varint field."""
    return varint(field << 3 | VARINT) + varint(value)


def bytes_field(field: int, value: bytes | memoryview) -> bytes:
    """Encode a length-delimited field."""
    return b"".join((varint(field << 3 | BYTES), varint(len(value)), value))


def text_field(field: int, value: str) -> bytes:
    """Encode a string field."""
    return bytes_field(field, value.encode())


def _read_varint(message: memoryview, position: int) -> tuple[int, int]:
    """Return the varint at `position` and the position after it."""
    value = 0
    for index, byte in enumerate(message[position : position + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise PefError(f"The program's graph is malformed: a number at byte {position} has no end.")


def _read_bytes(message: memoryview, position: int, size: int) -> tuple[memoryview, int]:
    """Return `size` bytes at `position` and the position after them."""
    end = position + size
    if end > len(message):
        raise PefError(
            f"The program's graph is malformed: {size} bytes at byte {position} reach beyond "
            f"its end."
        )
    return message[position:end], end
