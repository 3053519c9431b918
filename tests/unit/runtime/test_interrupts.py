"""Interrupts before each single operation: what is left is usable, or says what is not."""

from __future__ import annotations

import copy
import gc
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from interrupts import alarms, came, each_operation, operations
from training_programs import batches, linear_regression
from training_variants import accumulating, packed

import pef
import sambarun
from sambarun import RunError
from sambarun.device import fitted

_DROPOUT = {"drop.p": 0.4, "lr": 0.01}
_TORN = "A run broke off while it updated"


def _in_a_thread(act: Callable[[], object]) -> object:
    """Return what `act` returns in another thread, which finds nobody at work."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(act()))
    thread.start()
    thread.join()
    return found[0]


class Course:
    """A training run on one batch, and the states that it reaches, step by step."""

    def __init__(self, spec, folder: Path, batch: object, steps: int = 40) -> None:
        self.batch = batch
        self.path = folder / "course.safetensors"
        self.executable = sambarun.load(spec.program())
        self._set_rates(self.executable)
        self.executable.save(self.path)
        with sambarun.load(spec.program()) as other:
            self._set_rates(other)
            self.states, self.losses, self._clocks = [self._seen(other)], [], []
            for _ in range(steps):
                self._clocks.append(copy.copy(other._host.clock))
                self.losses.append(other.step(self.batch)["loss"].tobytes())
                self.states.append(self._seen(other))
            self._clocks.append(copy.copy(other._host.clock))
        self.at = 0
        self.torn = 0

    @staticmethod
    def _set_rates(executable: sambarun.Executable) -> None:
        executable.run(batches(1)[0], section_types="FWD", hyperparams=_DROPOUT)

    @staticmethod
    def _seen(executable: sambarun.Executable) -> dict[str, bytes]:
        return {name: value.tobytes() for name, value in executable.state().items()}

    def look(self, *reachable: int) -> None:
        """Check that one of the `reachable` steps after the last one has been made, as a whole."""
        self.executable.argins  # noqa: B018  # what is left is made good by the next call
        if self.executable._lock._workspace.state.torn:
            with pytest.raises(RunError, match=_TORN):
                self._seen(self.executable)
            with pytest.raises(RunError, match=_TORN):
                self.executable.step(self.batch)
            with pytest.raises(RunError, match=_TORN):
                self.executable.save(self.path.with_name("torn.safetensors"))
            self.torn += 1
            self.executable.load(self.path)
            self.at, reachable = 0, (0,)
        seen = self._seen(self.executable)
        found = [ahead for ahead in reachable if self.states[self.at + ahead] == seen]
        assert found, "a state that no whole number of steps leads to"
        self.at += found[0]
        assert self.executable._host.clock == self._clocks[self.at]

    def go_on(self) -> None:
        """Make a step, the same as in the course that nobody interrupted."""
        loss = self.executable.step(self.batch)["loss"]
        assert loss.tobytes() == self.losses[self.at]
        self.look(1)
        if self.at > len(self.losses) - 4:
            self.executable.load(self.path)
            self.at = 0


def test_a_run_interrupted_before_any_operation_leaves_an_executable_that_runs(chain_pef, x):
    results = {}
    with sambarun.load(chain_pef) as executable:
        for scale in (1, 2):
            results[scale] = executable.run({"x": scale * x})["y"]
        count = 0
        for count in each_operation(lambda: executable.run({"x": x * 2})):
            found = executable.run({"x": x})["y"]  # another array, at another address
            np.testing.assert_array_equal(found, results[1])
            if count % 8 == 0:
                found = _in_a_thread(lambda: executable.run({"x": 2 * x})["y"])
                np.testing.assert_array_equal(found, results[2])
        assert count > 100


def test_while_the_interrupt_is_being_handled_it_is_usable_too(chain_pef, x):
    with sambarun.load(chain_pef) as executable:
        expected = executable.run({"x": x})["y"]

        def fails(number: int) -> None:
            if came(number, lambda: executable.run({"x": x})):
                raise KeyboardInterrupt

        for number in range(0, 200, 3):
            try:
                fails(number)
            except KeyboardInterrupt:
                np.testing.assert_array_equal(executable.run({"x": x})["y"], expected)


def test_the_first_run_which_makes_sessions(chain_pef, x):
    with sambarun.load(chain_pef) as executable:
        stride = operations(lambda: executable.run({"x": x})) // 90
        expected = executable.run({"x": x})["y"]
    count, more = 0, True
    while more:
        with sambarun.load(chain_pef) as executable:
            more = came(count, lambda executable=executable: executable.run({"x": x}))
            np.testing.assert_array_equal(executable.run({"x": x})["y"], expected)
        count += stride
    assert count > 80 * stride


@pytest.mark.parametrize("make", [linear_regression, packed], ids=["plain", "packed"])
def test_a_training_step_has_been_made_or_not(make, tmp_path):
    course = Course(make(), tmp_path, batches(1)[0])
    course.go_on()
    made = 0
    for _ in each_operation(lambda: course.executable.step(course.batch)):
        before = course.at
        course.look(0, 1)
        made += course.at - before
        course.go_on()
    assert made > 10  # in some places it was over already, or has been brought to its end
    assert course.torn == 0


@pytest.mark.parametrize("types", ["FWD", "BCKWD", "OPT"])
def test_sections_that_run_one_by_one(types, tmp_path):
    course = Course(linear_regression(), tmp_path, batches(1)[0])
    order = ["FWD", "BCKWD", "OPT"]
    executable = course.executable

    def run(kind: str) -> None:
        executable.run(course.batch, section_types=kind, train=True)

    at = order.index(types)
    for kind in order[:at]:
        run(kind)
    for _ in each_operation(lambda: run(types), 200):
        executable.load(course.path)
        for kind in order:
            run(kind)
        course.at = 0
        course.look(1)
        executable.load(course.path)
        for kind in order[:at]:
            run(kind)


def test_a_step_of_several_batches_has_been_made_or_not_or_is_said_to_be_torn(tmp_path):
    course = Course(accumulating(), tmp_path, batches(2))
    course.go_on()
    for _ in each_operation(lambda: course.executable.step(course.batch), 400):
        course.look(0, 1)
        course.go_on()
    assert course.torn  # a running average was updated by the first batch alone


def test_loading_is_done_as_a_whole(tmp_path):
    course = Course(linear_regression(), tmp_path, batches(1)[0])
    later = tmp_path / "later.safetensors"
    for _ in range(3):
        course.go_on()
    course.executable.save(later)
    course.executable.load(course.path)
    course.at = 0
    for _ in each_operation(lambda: course.executable.load(later), 200):
        course.look(0, 3)
        course.executable.load(course.path)
        course.at = 0
        course.go_on()
        course.executable.load(course.path)
        course.at = 0


def test_values_are_written_all_or_none(tmp_path):
    with sambarun.load(linear_regression().program()) as executable:
        old = executable.read("w", "b")
        new = {"w": old["w"] + 1, "b": old["b"] + 1}

        def value() -> tuple[bytes, ...]:
            return tuple(array.tobytes() for array in executable.read("w", "b").values())

        allowed = {tuple(array.tobytes() for array in pair.values()) for pair in (old, new)}
        for _ in each_operation(lambda: executable.write(new), 300):
            assert value() in allowed
            executable.write(old)


def test_hyperparameters_are_set_all_or_none():
    (batch,) = batches(1)
    new = {"sgd.lr": 0.5, "sgd.momentum": 0.25}
    with sambarun.load(linear_regression().program()) as executable:
        old = {name: executable.argins[name] for name in new}

        def run(values: dict[str, float]) -> None:
            executable.run(batch, section_types="FWD", hyperparams=values)

        for _ in each_operation(lambda: run(new), 300):
            now = executable.argins
            assert {name: now[name] for name in new} in (old, new)
            run(old)


_CALLS: dict[str, Callable[[sambarun.Executable, Path], object]] = {
    "state": lambda executable, _: executable.state(),
    "argins": lambda executable, _: executable.argins,
    "read": lambda executable, _: executable.read("w", "x"),
    "memory": lambda executable, _: executable.memory(),
    "prepare": lambda executable, _: executable.prepare(section_types="BCKWD"),
    "input_buffer": lambda executable, _: executable.input_buffer("y"),
    "initialize": lambda executable, _: executable.initialize(1),
    "save": lambda executable, path: executable.save(path),
    "profile": lambda executable, _: executable.profile(batches(1)[0], section_types="FWD"),
    "clone": lambda executable, _: executable.clone().close(),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # files left open
@pytest.mark.parametrize("call", _CALLS)
def test_every_other_call_leaves_all_as_it_was(call, tmp_path):
    course = Course(linear_regression(), tmp_path, batches(1)[0])
    executable = course.executable
    executable.write({"x": course.batch["x"]})
    _CALLS[call](executable, tmp_path / "saved.safetensors")
    target = tmp_path / "saved.safetensors"
    for number in each_operation(lambda: _CALLS[call](executable, target), 150):
        course.look(0)
        if number % 5 == 0:
            course.go_on()
    gc.collect()
    executable.close()
    with pytest.raises(pef.PefError, match="is closed"):  # nobody is left who has it open
        executable._image.file.view(executable.program.programs[0].graph)


def test_closing_can_be_made_anew(chain_pef, x):
    count, more = 0, True
    while more:
        executable = sambarun.load(chain_pef)
        executable.prepare()
        more = came(count, executable.close)
        assert sys.exc_info()[1] is None  # which every later error of this process would come of
        executable.close()
        with pytest.raises(RunError, match="has been closed"):
            executable.run({"x": x})
        with pytest.raises(pef.PefError, match="is closed"):
            executable._image.file.view(executable.program.programs[0].graph)
        count += 5


def test_interrupts_that_come_again_and_again(tmp_path):
    """Those in the midst of making good what another has left."""
    course = Course(linear_regression(), tmp_path, batches(1)[0])
    for _ in range(300):
        try:
            with alarms(0.0003):
                for _ in range(20):
                    course.executable.step(course.batch)
        except KeyboardInterrupt:
            pass
        course.look(*range(len(course.states) - course.at))
        course.executable.load(course.path)
        course.at = 0


def test_a_second_caller_is_refused_whoever_it_is(chain_pef, x):
    with sambarun.load(chain_pef) as executable:
        with executable._held():
            with pytest.raises(RunError, match=r"at work already.*give each thread its own clone"):
                executable.run({"x": x})
            with pytest.raises(RunError, match="at work already"):
                executable.close()
        executable.run({"x": x})


def interrupt() -> None:
    """Press Ctrl-C."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


class Impatient:
    """Stands for onnxruntime's `create_session`, which an interrupt follows each time."""

    def __init__(self, make: Callable[..., object]) -> None:
        self.make, self.made = make, 0

    def __call__(self, *arguments: object) -> object:
        session = self.make(*arguments)
        self.made += 1
        # Python handles a signal that came meanwhile as soon as the call is over.
        interrupt()
        return session


@pytest.mark.parametrize("link", [True, False])
def test_sessions_that_have_been_made_are_kept(chain_pef, x, link, monkeypatch):
    with sambarun.load(chain_pef) as executable:
        expected = executable.run({"x": x})["y"]
    impatient = Impatient(fitted.create_session)
    monkeypatch.setattr(fitted, "create_session", impatient)
    interrupts = 0
    with sambarun.load(chain_pef, link=link) as executable:
        for _ in range(40):
            try:
                found = executable.run({"x": x})["y"]
                break
            except KeyboardInterrupt:
                interrupts += 1
        np.testing.assert_array_equal(found, expected)
        sections = len(executable.program.sections)
    assert interrupts >= 1
    assert impatient.made == (1 if link else sections)


def test_what_cannot_be_made_is_tried_anew_and_closing_waits(chain_pef, x, monkeypatch):
    make = fitted.create_session
    refusals = [RunError("not today")]

    def create_session(*arguments: object) -> object:
        if refusals:
            raise refusals.pop()
        return make(*arguments)

    monkeypatch.setattr(fitted, "create_session", create_session)
    with sambarun.load(chain_pef) as executable:
        with pytest.raises(RunError, match="not today"):
            executable.run({"x": x}, section_ids=[0])
        executable.run({"x": x}, section_ids=[0])


def test_closing_waits_for_what_an_interrupted_run_has_begun(chain_pef, x, monkeypatch):
    make, made = fitted.create_session, []
    begun, go_on = threading.Event(), threading.Event()

    def create_session(*arguments: object) -> object:
        begun.set()
        interrupt()
        go_on.wait(10)
        made.append(make(*arguments))
        return made[-1]

    monkeypatch.setattr(fitted, "create_session", create_session)
    executable = sambarun.load(chain_pef)
    with pytest.raises(KeyboardInterrupt):
        executable.run({"x": x})
    assert begun.is_set()
    assert not made
    go_on.set()
    executable.close()
    assert len(made) == 1
