"""Providers that compute in a memory of their own: inputs are copied there when they are bound."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper
from onnxruntime.capi import _pybind_state as ort
from training_programs import Reference, assert_state, batches, linear_regression

import sambarun
from pef import dtypes
from sambarun.sessions import provider
from sambarun.sessions.provider import CPU, Provider

OPTIONS = {"device": "0"}


@dataclass(frozen=True)
class Device(Provider):
    """The processor's kernels, said to be those of something else."""

    is_processor = False

    def open(self, model: bytes, options: Any) -> Any:
        return self._open(model, options)


class CopyingBinding(ort.SessionIOBinding):
    """A binding that keeps what an input is when it is bound, as onnxruntime's do for a device."""

    def __init__(self, session: Any) -> None:
        super().__init__(session)
        self._kept: dict[str, Any] = {}

    def bind_input(
        self, name: str, device: Any, dtype: int, shape: tuple[int, ...], address: int
    ) -> None:
        size = prod(shape) * np.dtype(dtypes.BY_NUMBER[dtype].storage).itemsize
        kept = self._kept[name] = ctypes.create_string_buffer(ctypes.string_at(address, size), size)
        super().bind_input(name, device, dtype, shape, ctypes.addressof(kept))


@dataclass(frozen=True)
class Place:
    """Where onnxruntime says that an input lies."""

    name: str


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let inputs of sessions lie in another memory, and copy what is bound there."""

    def places(session: onnxruntime.InferenceSession) -> list[Place]:
        return [Place("Device") for _ in session.get_inputs()]

    monkeypatch.setattr(provider, "_WITHOUT_OPTIONS", ())
    monkeypatch.setattr(onnxruntime.InferenceSession, "get_input_memory_infos", places)
    monkeypatch.setattr(ort, "SessionIOBinding", CopyingBinding)


@pytest.mark.parametrize("link", [True, False], ids=["linked", "unlinked"])
def test_each_run_reads_what_is_there_then(spec_type, sec_type, value_type, link):
    node = helper.make_node
    program = spec_type(
        sections=[
            sec_type([node("Neg", ["x"], ["a"])], ["x"], ["a"]),
            sec_type([node("Add", ["a", "x"], ["b"])], ["a", "x"], ["b"]),
            sec_type([node("Sub", ["b", "a"], ["y"])], ["b", "a"], ["y"]),
        ],
        values={name: value_type() for name in "xaby"},
        inputs=["x"],
        outputs=["y"],
    ).program()
    x = np.zeros(4, np.float32)
    with sambarun.load(program, link=link, provider=Device(CPU.name, OPTIONS)) as executable:
        for number in range(3):
            x[:] = [number, -1, 2, number]  # where it was
            np.testing.assert_array_equal(executable.run({"x": x})["y"], x)


def test_steps_read_the_states_of_those_before():
    spec = linear_regression()
    reference = Reference.of(spec)
    with sambarun.load(spec.program(), provider=Device(CPU.name, OPTIONS)) as executable:
        for batch in batches(4):
            executable.step(batch)
            reference.step(batch["x"], batch["y"])
        assert_state(executable, reference)
