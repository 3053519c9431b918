"""A PEF reads no file but itself, whatever its programs say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pef
import sambarun
from sambarun.sessions.opening import Tuning, create_session
from sambarun.sessions.threads import choose


def curious(program, name="secret.bin"):
    """`program` with graphs that add what lies in another file to their results."""
    pieces, programs, offset = [], [], 0
    for item in program.programs:
        content = program.segments[0].content(item.graph)
        model = onnx.ModelProto.FromString(bytes(content))
        secret = model.graph.initializer.add(name="secret", data_type=TensorProto.FLOAT, dims=[4])
        secret.data_location = TensorProto.EXTERNAL
        secret.external_data.add(key="location", value=name)
        made = model.graph.node[-1].output[0]
        model.graph.node[-1].output[0] = "sum"
        model.graph.node.append(helper.make_node("Add", ["sum", "secret"], [made]))
        graph = model.SerializeToString()
        pieces.append(pef.Piece(offset, graph))
        programs.append(replace(item, graph=pef.DataRef(0, offset, len(graph))))
        offset += -(-len(graph) // 64) * 64
    size = pieces[-1].offset + len(pieces[-1].data)
    segment = pef.Segment("programs", size, tuple(pieces))
    segments = (segment, *program.segments[1:])
    return replace(program, programs=tuple(programs), segments=segments)


@pytest.fixture
def path(spec_type, sec_type, value_type, tmp_path, monkeypatch):
    monkeypatch.setattr("pef.writer.check_program", lambda _: [])
    spec = spec_type(
        sections=[
            sec_type([helper.make_node("Neg", ["x"], ["h"])], ["x"], ["h"]),
            sec_type([helper.make_node("Abs", ["h"], ["y"])], ["h"], ["y"]),
        ],
        values={name: value_type() for name in "xhy"},
        inputs=["x"],
        outputs=["y"],
    )
    np.full(4, 42, np.float32).tofile(tmp_path / "secret.bin")
    path = tmp_path / "curious.pef"
    curious(spec.program()).save(path)
    return path


@pytest.mark.parametrize("options", [{}, {"link": False}, {"one_shot": True}])
def test_a_program_does_not_get_another_file(path, options, monkeypatch):
    monkeypatch.chdir(path.parent)
    words = r"section 0 's0' keeps the content of 'secret' in another file, which no program may"
    with (
        sambarun.load(path, **options) as executable,
        pytest.raises(sambarun.RunError, match=words),
    ):
        executable.run({"x": np.zeros(4, np.float32)})


def test_bytes_in_onnxruntimes_own_format_are_no_program(tmp_path):
    tuning = Tuning(choose(1, own_process=False))
    with pytest.raises(sambarun.RunError, match=r"(?i)protobuf|parse"):
        create_session(b"\x10\x00\x00\x00ORTM" + bytes(100), str(tmp_path), tuning)
