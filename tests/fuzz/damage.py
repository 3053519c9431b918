"""Damage to a message: any field of any message inside it may change, appear, go or repeat.

The message is walked by its descriptors, so that what the format gains is damaged too. Texts are
replaced by other texts of the same model, which rewires edges, renames ports and changes
operators; numbers by those at the edges of what they are stored in. Some damage is done to the
bytes instead, as a bad copy does.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError, Message

INTEGERS = (
    0, 1, -1, 2, 3, 7, 11, 16, 23, 30, 100, -2, -100, 2**15, 2**31 - 1, 2**31, -(2**31), 2**32,
    2**40, 2**62, 2**63 - 1, -(2**63),
)  # fmt: skip
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 3e38, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", "?", "a b", "../x", "/etc/passwd", "\N{SNOWMAN}", "x" * 300, "ai.onnx.ml", "If")
_DEEPEST = 12


def damaged(model: onnx.ModelProto, rng: random.Random) -> bytes:
    """Return the bytes of `model` after one to four changes."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        _change(rng.choice(list(_messages(copy))), copy, rng)
    try:
        data = copy.SerializeToString()
    except EncodeError:  # a text that is no text
        data = model.SerializeToString()
    return _flipped(data, rng) if rng.random() < 0.15 else data


def _messages(message: Message, depth: int = 0) -> Iterator[Message]:
    """Yield `message` and all messages in it."""
    yield message
    if depth < _DEEPEST:
        for field, value in message.ListFields():
            if field.message_type is not None:
                for inner in value if field.is_repeated else (value,):
                    yield from _messages(inner, depth + 1)


def _change(message: Message, model: onnx.ModelProto, rng: random.Random) -> None:
    """Change one field of `message`, mostly one that is there."""
    there = [field for field, _ in message.ListFields()]
    fields = list(message.DESCRIPTOR.fields)
    field = rng.choice(there if there and rng.random() < 0.8 else fields)
    if field.is_repeated:
        _change_list(message, field, model, rng)
    elif rng.random() < 0.1:
        message.ClearField(field.name)
    elif field.message_type is not None:
        _replace(getattr(message, field.name), field, model, rng)
    else:
        _set(message, field, _value(field, getattr(message, field.name), model, rng))


def _change_list(
    message: Message, field: FieldDescriptor, model: onnx.ModelProto, rng: random.Random
) -> None:
    """Drop, repeat, swap, change or add an element."""
    values: Any = getattr(message, field.name)
    what = rng.choice(("drop", "repeat", "swap", "change", "change", "add", "clear"))
    place = rng.randrange(len(values)) if values else 0
    if not values or what == "add":
        if field.message_type is not None:
            _replace(values.add(), field, model, rng)
        else:
            values.append(_value(field, None, model, rng))
    elif what == "drop":
        del values[place]
    elif what == "clear":
        del values[:]
    elif field.message_type is not None:
        if what == "repeat":
            values.add().CopyFrom(values[place])
        elif what == "swap":
            other = type(values[place])()
            other.CopyFrom(values[place])
            del values[place]
            values.insert(rng.randrange(len(values) + 1), other)
        else:
            _replace(values[place], field, model, rng)
    elif what == "repeat":
        values.append(values[place])
    elif what == "swap":
        values.insert(0, values.pop(place))
    else:
        values[place] = _value(field, values[place], model, rng)


def _replace(
    message: Message, field: FieldDescriptor, model: onnx.ModelProto, rng: random.Random
) -> None:
    """Make `message` another one of its kind in the model, or an empty one."""
    kind = field.message_type
    alike = [found for found in _messages(model) if found.DESCRIPTOR is kind]
    if alike and rng.random() < 0.8:
        other = type(message)()
        other.CopyFrom(rng.choice(alike))
        if other.ByteSize() + model.ByteSize() < 1 << 16:
            message.CopyFrom(other)
    elif message.ListFields():
        message.Clear()
    else:
        message.SetInParent()


def _set(message: Message, field: FieldDescriptor, value: Any) -> None:
    try:
        setattr(message, field.name, value)
    except ValueError:  # an enumeration that is closed
        message.ClearField(field.name)


def _value(field: FieldDescriptor, old: Any, model: onnx.ModelProto, rng: random.Random) -> Any:
    """Return a new value for a field of numbers, text or bytes."""
    if field.cpp_type in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return rng.choice(FLOATS)
    if field.cpp_type != FieldDescriptor.CPPTYPE_STRING:
        return _integer(field, old, rng)
    if field.type == FieldDescriptor.TYPE_BYTES:
        content = old or b"\xff\xfe"
        return rng.choice((b"", content[:-1], content * 2, _flipped(content, rng), b"\xff"))
    known = [text for message in _messages(model) for text in _texts(message)]
    return rng.choice(known if known and rng.random() < 0.7 else TEXTS)


def _integer(field: FieldDescriptor, old: Any, rng: random.Random) -> int:
    edges = INTEGERS if old is None else (*INTEGERS, old + 1, old - 1, -old)
    value = int(rng.choice(edges))
    wide = field.cpp_type in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)
    bits = 64 if wide else 32
    if field.cpp_type in (FieldDescriptor.CPPTYPE_UINT64, FieldDescriptor.CPPTYPE_UINT32):
        return value % 2**bits
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def _texts(message: Message) -> Iterator[str]:
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_STRING:
            yield from value if field.is_repeated else (value,)


def _flipped(data: bytes, rng: random.Random) -> bytes:
    """Return `data` with a few bytes changed, a stretch moved, or the end cut off."""
    changed = bytearray(data)
    what = rng.choice(("flip", "flip", "move", "cut"))
    if not changed:
        return data
    if what == "cut":
        return bytes(changed[: rng.randrange(len(changed))])
    if what == "move":
        start, to, size = (rng.randrange(len(changed)) for _ in range(3))
        changed[to : to + size % 64] = data[start : start + size % 64]
        return bytes(changed)
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def parses(data: bytes) -> bool:
    """Tell whether `data` is a message at all."""
    try:
        onnx.ModelProto.FromString(data)
    except DecodeError:
        return False
    return True
