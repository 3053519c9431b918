"""Reading model files: what is accepted, and what each refusal says."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from sambac.errors import CompileError
from sambac.frontend import load
from sambac.graph.origins import MODULE_SCOPES, SOURCE_LINE, STACK_TRACE
from sambac.options import CompileOptions

Make = Callable[..., onnx.ModelProto]
OPTIONS = CompileOptions()


def test_a_file_gives_its_stem_and_hash(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "net.v1.onnx"
    onnx.save(make(), path)
    source = load(path, OPTIONS)
    assert source.name == "net.v1"
    assert source.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert source.signature.inputs == ("x",)
    assert source.signature.outputs == ("y",)
    assert not source.signature.defaults


def test_models_from_memory_are_left_alone(make: Make) -> None:
    proto = make()
    before = proto.SerializeToString(deterministic=True)
    load(proto, CompileOptions())
    assert proto.SerializeToString(deterministic=True) == before
    model = ir.from_proto(make(ir_version=3, listed=True))
    load(model, OPTIONS)
    assert [value.name for value in model.graph.inputs] == ["x", "w"]


def test_proto_and_ir_of_one_model_have_one_hash(make: Make) -> None:
    assert load(make(), OPTIONS).sha256 == load(ir.from_proto(make()), OPTIONS).sha256


def test_annotations_are_dropped(make: Make) -> None:
    proto = make()
    helper.set_model_props(proto, {"author": "somebody"})
    model = load(proto, OPTIONS).model
    assert not model.metadata_props
    assert all(node.doc_string is None for node in model.graph)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"hello, this is no model\n" * 20, "is not an ONNX model"),
        (b"\x08\x08", "is no complete ONNX model"),
    ],
)
def test_other_files_are_refused(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(CompileError, match=says):
        load(path, OPTIONS)


def test_every_truncation_is_refused_or_complete(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(make(), path)
    content = path.read_bytes()
    for size in range(len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(CompileError):
            load(path, OPTIONS)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="there is no file"):
        load(tmp_path / "no.onnx", OPTIONS)
    with pytest.raises(CompileError, match="is a folder"):
        load(tmp_path, OPTIONS)


def test_output_made_twice(make: Make) -> None:
    proto = make()
    proto.graph.node.append(proto.graph.node[0])
    with pytest.raises(CompileError, match="'y' is redeclared"):
        load(proto, OPTIONS)


def test_sparse_constants_become_dense(make: Make) -> None:
    proto = make()
    weight = proto.graph.initializer.pop()
    values = helper.make_tensor("w", TensorProto.FLOAT, [2], [5.0, 7.0])
    indices = helper.make_tensor("i", TensorProto.INT64, [2, 2], [0, 1, 2, 3])
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, weight.dims))
    dense = load(proto, OPTIONS).model.graph.initializers["w"].const_value
    assert dense is not None
    found = dense.numpy()
    assert found.shape == (3, 4)
    assert (found[0, 1], found[2, 3], found.sum()) == (5.0, 7.0, 12.0)
    assert len(proto.graph.sparse_initializer) == 1


def test_where_operators_come_from_is_kept(make: Make) -> None:
    proto = make()
    trace = 'File "/models/net.py", line 7, in forward'
    scopes = "['', 'layer', 'matmul']"
    for key, value in ((MODULE_SCOPES, scopes), (STACK_TRACE, trace), ("author", "somebody")):
        proto.graph.node[0].metadata_props.add(key=key, value=value)
    (node,) = load(proto, OPTIONS).model.graph
    assert dict(node.metadata_props) == {MODULE_SCOPES: scopes, SOURCE_LINE: "net.py:7"}


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda proto: proto.graph.input[0].type.tensor_type.ClearField("elem_type"), "'x' has no"),
        (lambda proto: proto.graph.input[0].ClearField("type"), "'x' has no type"),
        (lambda proto: proto.graph.initializer[0].ClearField("data_type"), "constant 'w' has no"),
    ],
)
def test_damage_is_named(make: Make, damage: Callable[[onnx.ModelProto], None], says: str) -> None:
    proto = make()
    damage(proto)
    with pytest.raises(CompileError, match=says):
        load(proto, OPTIONS)


def test_names_that_are_no_text(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(make().SerializeToString().replace(b"MatMul", b"Mat\xff\xfel"))
    with pytest.raises(CompileError, match="is no text"):
        load(path, OPTIONS)
