"""What onnxruntime takes for values inside of sessions: shared by sessions, and given back."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import sambarun
from sambarun.device.footprint import private_bytes
from sambarun.sessions.opening import Tuning, begin_arena, create_session, trim_heap
from sambarun.sessions.provider import CPU
from sambarun.sessions.threads import Threads

_ELEMENTS = 1 << 24
_INSIDE = 4 * _ELEMENTS  # bytes; the least that a run needs inside
_X = np.ones(1, np.float32)


def _nodes(start: str, end: str) -> list:
    """A number becomes 64 MB of them, inside of a section, and a number again."""
    wide, root = f"{end}_wide", f"{end}_root"
    return [
        helper.make_node("Constant", [], [f"{end}_size"], value_ints=[_ELEMENTS]),
        helper.make_node("Expand", [start, f"{end}_size"], [wide]),
        helper.make_node("Sqrt", [wide], [root]),
        helper.make_node("ReduceMean", [root], [end], keepdims=1),
    ]


def _model() -> bytes:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph(_nodes("x", "y"), "graph", ends[:1], ends[1:])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    ).SerializeToString()


def _run(session: onnxruntime.InferenceSession) -> None:
    (y,) = session.run(None, {"x": _X})
    assert y == 1


@pytest.fixture
def taken():
    """Return a function that tells how many bytes the process has taken since.

    What lies free in the C library's heap does not count: where tests before have left enough room
    there, large pieces come from it and return to it, instead of to the system.
    """

    def resident() -> int:
        trim_heap()
        return private_bytes()

    begin_arena(CPU)
    before = resident()
    return lambda: resident() - before


def test_sessions_use_the_same_memory_one_after_the_other(taken):
    sessions = [create_session(_model(), ".", Tuning(Threads(1))) for _ in range(3)]
    first = None
    for session in sessions:
        _run(session)  # learns how much it needs, and takes that in one piece from then on
        _run(session)
        first = first or taken()
        assert 0.5 * _INSIDE < taken() < 1.5 * first


def test_sessions_of_other_code_are_not_concerned(taken):
    mine = create_session(_model(), ".", Tuning(Threads(1)))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    other = onnxruntime.InferenceSession(_model(), options, providers=["CPUExecutionProvider"])
    _run(other)
    del other
    assert taken() < 0.5 * _INSIDE  # its arena went with it
    _run(mine)


def test_a_session_keeps_its_arena_when_another_begins(taken):
    session = create_session(_model(), ".", Tuning(Threads(1)))
    _run(session)
    begin_arena(CPU)
    assert taken() > 0.5 * _INSIDE
    _run(session)
    del session
    assert taken() < 0.5 * _INSIDE


def test_an_executable_that_is_closed_gives_back_what_its_sessions_took(
    taken, spec_type, sec_type, value_type
):
    spec = spec_type(
        sections=[
            sec_type(_nodes("x", "h"), ["x"], ["h"]),
            sec_type(_nodes("h", "y"), ["h"], ["y"]),
        ],
        values={name: value_type((1,)) for name in ("x", "h", "y")},
        inputs=["x"],
        outputs=["y"],
    )
    executable = sambarun.load(spec.program(), link=False)
    for _ in range(3):
        executable.run({"x": _X}, section_ids=[0])
    one = taken()
    for _ in range(3):
        executable.run({"x": _X})
    assert 0.5 * _INSIDE < taken() < 1.5 * one
    assert executable.memory().beside > 0.5 * _INSIDE
    executable.close()
    assert taken() < 0.5 * _INSIDE


def test_memory_that_was_freed_goes_back(taken):
    pieces = [np.ones(1 << 14, np.uint8) for _ in range(1 << 12)]
    last = np.ones(1 << 14, np.uint8)  # keeps the end of the heap in use
    assert taken() > 1 << 25
    del pieces
    trim_heap()
    assert taken() < 1 << 25
    assert last.all()
