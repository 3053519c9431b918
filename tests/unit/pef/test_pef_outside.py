"""Programs that want another file: found wherever a message can hold the wish, and refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi import onnxruntime_pybind11_state as state
from pef_formats import format_0_1

import pef
from pef import outside
from pef.wire import bytes_field, int_field, text_field, varint


def external(name: str = "secret") -> onnx.TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[4])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret.bin")
    return tensor


def sparse(values: onnx.TensorProto, indices: onnx.TensorProto) -> onnx.SparseTensorProto:
    return onnx.SparseTensorProto(values=values, indices=indices, dims=[4])


def graph(*nodes: onnx.NodeProto, **parts: list) -> onnx.GraphProto:
    return onnx.GraphProto(name="g", node=nodes, **parts)


def node(**attribute: object) -> onnx.NodeProto:
    return onnx.NodeProto(
        op_type="Anything", attribute=[onnx.AttributeProto(name="a", **attribute)]
    )


def model(*nodes: onnx.NodeProto, **parts: list) -> bytes:
    opsets = [helper.make_opsetid("", 21)]
    proto = onnx.ModelProto(ir_version=10, graph=graph(*nodes, **parts), opset_import=opsets)
    return proto.SerializeToString()


def with_function(**parts: list) -> bytes:
    function = onnx.FunctionProto(name="f", domain="own", **parts)
    proto = onnx.ModelProto(ir_version=10, graph=graph(), functions=[function])
    return proto.SerializeToString()


def with_training(**parts: onnx.GraphProto) -> bytes:
    info = onnx.TrainingInfoProto(**parts)
    return onnx.ModelProto(graph=graph(), training_info=[info]).SerializeToString()


PLAIN = numpy_helper.from_array(np.zeros(4, np.float32), "p")
INNER = graph(node(g=graph(initializer=[external()])))

WISHES: dict[str, Callable[[], bytes]] = {
    "initializer": lambda: model(initializer=[PLAIN, external()]),
    "sparse values": lambda: model(sparse_initializer=[sparse(external(), PLAIN)]),
    "sparse indices": lambda: model(sparse_initializer=[sparse(PLAIN, external())]),
    "attribute": lambda: model(node(t=external())),
    "list of tensors": lambda: model(node(tensors=[PLAIN, external()])),
    "sparse attribute": lambda: model(node(sparse_tensor=sparse(external(), PLAIN))),
    "sparse list": lambda: model(node(sparse_tensors=[sparse(PLAIN, external())])),
    "subgraph": lambda: model(node(g=INNER)),
    "subgraphs": lambda: model(node(graphs=[graph(), INNER])),
    "function": lambda: with_function(node=[node(t=external())]),
    "default of a function": lambda: with_function(
        attribute_proto=[onnx.AttributeProto(name="a", t=external())]
    ),
    "function's subgraph": lambda: with_function(node=[node(g=INNER)]),
    "training": lambda: with_training(algorithm=graph(node(t=external()))),
    "initialization": lambda: with_training(initialization=INNER),
    "second graph": lambda: model() + model(initializer=[external()]),
    "numbers longer than need be": lambda: bytes_field(
        7,
        bytes_field(
            5,
            b"\xf0\x80\x00\x81\x00"  # data_location = EXTERNAL
            + bytes_field(13, text_field(1, "location") + text_field(2, "x")),
        ),
    ),
}


@pytest.mark.parametrize("where", WISHES)
def test_content_in_another_file(where: str) -> None:
    (wish,) = outside.outside_references(memoryview(WISHES[where]()))
    assert re.fullmatch(r"keeps the content of ('secret'|a tensor) in another file", wish)


@pytest.mark.parametrize("domain", ["com.microsoft", "", "own"])
@pytest.mark.parametrize("inside", [False, True])
def test_operators_that_read_files(domain: str, inside: bool) -> None:
    reader = helper.make_node("EPContext", [], ["y"], domain=domain, ep_cache_context="x.bin")
    found = model(node(g=graph(reader)) if inside else reader)
    wishes = outside.outside_references(memoryview(found))
    assert wishes == ["holds the operator EPContext, which reads another file"]


def test_settings_of_the_session() -> None:
    proto = onnx.ModelProto.FromString(model())
    proto.metadata_props.add(key="ort_config", value='{"session_options": {}}')
    wishes = outside.outside_references(memoryview(proto.SerializeToString()))
    assert wishes == ["brings settings for the session (ort_config)"]


@pytest.mark.parametrize(
    "harmless",
    [
        lambda: model(helper.make_node("Identity", ["location"], ["y"])),
        lambda: model(helper.make_node("Identity", ["x"], ["y"], name="EPContext")),
        lambda: model(initializer=[TensorProto(name="location", data_location=0)]),
        lambda: b"",
    ],
)
def test_names_alone_do_no_harm(harmless: Callable[[], bytes]) -> None:
    assert outside.outside_references(memoryview(harmless())) == []


@pytest.mark.parametrize("odd", [b"\x0b", b"\x3a\x7f", int_field(7, 3), varint(7 << 3 | 3)])
def test_what_cannot_be_read_is_not_believed(odd: bytes) -> None:
    """onnxruntime's parser knows more of the wire format than this one."""
    (wish,) = outside.outside_references(memoryview(bytes_field(3, b"location") + odd))
    assert wish.startswith("has a graph that cannot be checked (")


def test_every_operator_that_names_a_file_is_known() -> None:
    """Fails when onnxruntime gets an operator with an attribute that may be the name of a file.

    Snpe holds the content of a file, and has no kernel in this build.
    """
    speaks = re.compile(r"\b(files?|filename|path|director(y|ies)|folder|library)\b", re.IGNORECASE)
    found = {
        schema.name
        for schema in state.get_all_operator_schema()
        for name, attribute in schema.attributes.items()
        if speaks.search(name.replace("_", " ")) or speaks.search(attribute.description or "")
    }
    assert found == outside.OPERATORS | {"Snpe"}


def program_with(content: bytes, index: int) -> pef.Program:
    """The small program, with `content` as one of its two graphs."""
    program = format_0_1()
    graphs = [b"first", b"second"]
    graphs[index] = content
    refs = (pef.DataRef(0, 0, len(graphs[0])), pef.DataRef(0, 4096, len(graphs[1])))
    pieces = (pef.Piece(0, graphs[0]), pef.Piece(4096, graphs[1]))
    segment = pef.Segment("programs", 4096 + len(graphs[1]), pieces)
    programs = tuple(
        replace(item, graph=ref) for item, ref in zip(program.programs, refs, strict=True)
    )
    return replace(program, programs=programs, segments=(segment, *program.segments[1:]))


@pytest.mark.parametrize("index", [0, 1])
def test_reader_and_writer_refuse_such_programs(
    index: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every program counts, those of variants that this host would not choose as well."""
    program = program_with(model(initializer=[external()]), index)
    words = f"program {index} keeps the content of 'secret' in another file, which no program may"
    assert pef.check_program(program) == [words]
    path = tmp_path / "curious.pef"
    with pytest.raises(pef.PefError, match=words):
        pef.write(program, path)
    monkeypatch.setattr("pef.writer.check_program", lambda _: [])
    pef.write(program, path)
    with pytest.raises(pef.PefError, match=words):
        pef.verify(path)
