"""External data: mapped, confined to the model's folder, checked for size."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from sambac.errors import CompileError
from sambac.frontend import load
from sambac.options import CompileOptions

OPTIONS = CompileOptions()


def relocate(path: Path, **fields: str) -> None:
    """Change what the model says of its external data."""
    proto = onnx.load(path, load_external_data=False)
    for entry in proto.graph.initializer[0].external_data:
        entry.value = fields.get(entry.key, entry.value)
    path.write_bytes(proto.SerializeToString())


def test_data_is_mapped_not_read(external: Path) -> None:
    tensor = load(external, OPTIONS).model.graph.initializers["w"].const_value
    assert tensor is not None
    array = tensor.numpy()
    assert np.array_equal(array, np.ones((1024, 4), np.float32))
    assert not array.flags.owndata
    assert not array.flags.writeable


def test_a_model_of_onnx_ir_knows_its_folder(external: Path) -> None:
    tensor = load(ir.load(external), OPTIONS).model.graph.initializers["w"].const_value
    assert tensor is not None
    assert tensor.numpy().sum() == 4096


def test_a_proto_does_not(external: Path) -> None:
    proto = onnx.load(external, load_external_data=False)
    with pytest.raises(CompileError, match="by its path"):
        load(proto, OPTIONS)


def test_missing_data(external: Path) -> None:
    (external.parent / "w.bin").unlink()
    with pytest.raises(CompileError, match=r"'w\.bin' is missing"):
        load(external, OPTIONS)


def test_short_data(external: Path) -> None:
    os.truncate(external.parent / "w.bin", 100)
    with pytest.raises(CompileError, match="ends at byte 16384 of a file of 100"):
        load(external, OPTIONS)


def test_declared_length_that_does_not_fit_the_shape(external: Path) -> None:
    relocate(external, length="16380")
    with pytest.raises(CompileError, match=r"needs 16384 bytes .* declares 16380"):
        load(external, OPTIONS)


@pytest.mark.parametrize("location", ["../w.bin", "{outside}", "inner/../../w.bin"])
def test_paths_out_of_the_folder(external: Path, location: str) -> None:
    outside = external.parent.parent / "w.bin"
    shutil.copy(external.parent / "w.bin", outside)
    relocate(external, location=location.format(outside=outside))
    with pytest.raises(CompileError, match="leads out of the model's folder"):
        load(external, OPTIONS)


def test_links_out_of_the_folder(external: Path) -> None:
    inside = external.parent / "w.bin"
    outside = external.parent.parent / "w.bin"
    inside.rename(outside)
    inside.symlink_to(outside)
    with pytest.raises(CompileError, match="leads out of the model's folder"):
        load(external, OPTIONS)


def test_a_linked_model_may_use_the_folder_it_lies_in(external: Path, tmp_path: Path) -> None:
    link = tmp_path / "links"
    link.mkdir()
    for name in ("m.onnx", "w.bin"):
        (link / name).symlink_to(external.parent / name)
    assert load(link / "m.onnx", OPTIONS).name == "m"


def test_packed_types(external: Path) -> None:
    proto = onnx.load(external, load_external_data=False)
    proto.graph.initializer[0].data_type = onnx.TensorProto.INT4
    external.write_bytes(proto.SerializeToString())
    relocate(external, length="2048")
    tensor = load(external, OPTIONS).model.graph.initializers["w"].const_value
    assert tensor is not None
    assert len(tensor.tobytes()) == 2048
    assert tensor.dtype == ir.DataType.INT4


def test_attributes_may_be_external(external: Path) -> None:
    proto = onnx.load(external, load_external_data=False)
    tensor = proto.graph.initializer.pop()
    proto.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["w"], value=tensor))
    external.write_bytes(proto.SerializeToString())
    constant = next(iter(load(external, OPTIONS).model.graph))
    assert constant.attributes["value"].as_tensor().numpy().sum() == 4096


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"location": "w\0.bin"}, "cannot be a file"),
        ({"offset": "-4"}, "offset must be non-negative, got -4"),
        ({"offset": "four"}, "four"),
    ],
)
def test_damaged_references(external: Path, fields: dict[str, str], says: str) -> None:
    relocate(external, **fields)
    with pytest.raises(CompileError, match=says):
        load(external, OPTIONS)
