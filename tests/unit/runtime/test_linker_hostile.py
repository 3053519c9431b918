"""Graphs come from files: whatever their bytes are, the linker answers or raises `RunError`."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pef
import sambarun
from pef import wire
from sambarun.linking.linker import Part, link, opset_imports


def sample() -> bytes:
    """A graph with every kind of field that the linker looks into."""
    inner = helper.make_graph(
        [helper.make_node("Add", ["i0", "w0"], ["r"], name="inner")],
        "body",
        [],
        [helper.make_tensor_value_info("r", TensorProto.FLOAT, [4])],
        [numpy_helper.from_array(np.ones(2, np.float32), "unused")],
    )
    nodes = [
        helper.make_node("Cast", ["c"], ["b"], to=TensorProto.BOOL),
        helper.make_node("If", ["b"], ["o0"], then_branch=inner, else_branch=inner),
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in ("i0", "o0")]
    graph = helper.make_graph(
        nodes, "g", values[:1], values[1:], [numpy_helper.from_array(np.float32(1), "c")]
    )
    graph.sparse_initializer.append(
        helper.make_sparse_tensor(
            numpy_helper.from_array(np.float32([1]), "s"),
            numpy_helper.from_array(np.int64([0]), "t"),
            [2],
        )
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    return model.SerializeToString()


def attempt(graph: bytes) -> bool:
    """Link a graph with itself; tell whether that worked."""
    view = memoryview(graph)
    parts = [
        Part("a", view, {"i0": "x"}, {"w0": "w"}, {"o0": "h"}),
        Part("b", view, {"i0": "h"}, {"w0": "w"}, {"o0": "y"}),
    ]
    try:
        opset_imports(view)
        link(parts, ["y"])
    except sambarun.RunError:
        return False
    return True


def test_the_sample_links():
    assert attempt(sample())


def test_every_truncation():
    graph = sample()
    assert not any(attempt(graph[:size]) for size in range(1, len(graph) - 1) if size < 40)
    for size in range(len(graph)):
        attempt(graph[:size])


def test_every_byte_changed():
    graph = bytearray(sample())
    survived = 0
    for position in range(len(graph)):
        for mask in (0x01, 0x80, 0xFF):
            graph[position] ^= mask
            survived += attempt(bytes(graph))
            graph[position] ^= mask
    assert 0 < survived < 3 * len(graph), "some changes only touch content, others break structure"


@pytest.mark.parametrize("seed", range(20))
def test_random_mutations(seed):
    """Bytes replaced, removed, repeated and moved."""
    rng = random.Random(seed)
    original = sample()
    for _ in range(100):
        graph = bytearray(original)
        for _ in range(rng.randint(1, 8)):
            at, size = rng.randrange(len(graph)), rng.randint(1, 16)
            match rng.randrange(4):
                case 0:
                    graph[at : at + size] = rng.randbytes(size)
                case 1:
                    del graph[at : at + size]
                case 2:
                    graph[at:at] = graph[at : at + size]
                case _:
                    graph[at:at] = original[: rng.randrange(len(original))]
            if not graph:
                break
        attempt(bytes(graph))


@pytest.mark.parametrize("seed", range(10))
def test_noise(seed):
    rng = random.Random(seed)
    for _ in range(100):
        attempt(rng.randbytes(rng.randint(0, 200)))


def test_deep_nesting_is_refused():
    graph = b""
    for _ in range(200):
        attribute = wire.bytes_field(6, graph)
        graph = wire.bytes_field(1, wire.bytes_field(5, attribute))
    model = wire.bytes_field(7, graph)
    with pytest.raises(sambarun.RunError, match="nests subgraphs deeper than 64"):
        link([Part("a", memoryview(model), {}, {}, {})], [])


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"\x08", "has no end"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "has no end"),
        (b"\x0a\x05ab", "reach beyond its end"),
        (b"\x0a" + b"\xff" * 9 + b"\x01", "reach beyond its end"),
        (b"\x0d\x00", "reach beyond its end"),
        (b"\x09\x00", "reach beyond its end"),
        (b"\x0b", "wire type 3"),
        (b"\x0f", "wire type 7"),
    ],
)
def test_malformed_fields(message, words):
    with pytest.raises(pef.PefError, match=words):
        list(wire.fields(memoryview(message)))


def test_kinds_of_fields_are_checked():
    for reader, value in ((wire.content, 1), (wire.text, 1), (wire.number, memoryview(b"a"))):
        with pytest.raises(pef.PefError, match="malformed"):
            reader(value)
    with pytest.raises(pef.PefError, match="not UTF-8"):
        wire.text(memoryview(b"\xff"))


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**31, 2**63, 2**64 - 1])
def test_numbers_round_trip(value):
    ((key, found, raw),) = wire.fields(memoryview(wire.int_field(8, value)))
    assert (key, found, bytes(raw)) == (8, value, wire.int_field(8, value))


def test_what_is_written_is_what_protobuf_writes():
    entry = wire.text_field(1, "domain") + wire.int_field(2, 300)
    model = wire.int_field(1, 10) + wire.bytes_field(8, entry)
    parsed = onnx.ModelProto.FromString(model)
    assert parsed.SerializeToString() == model
    assert (parsed.opset_import[0].domain, parsed.opset_import[0].version) == ("domain", 300)
