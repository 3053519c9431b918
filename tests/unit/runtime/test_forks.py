"""Processes that are forked from one with executables, whose sessions have threads of their own."""

from __future__ import annotations

import gc
import os
import signal
import time
import warnings
from collections.abc import Callable

import numpy as np
import pytest

import sambarun
from sambarun import RunError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
PATIENCE = 20.0


def in_a_fork(work: Callable[[], object]) -> str:
    """Return what a forked process says of its `work`, which must come to an end."""
    gc.collect()  # sessions that other tests made by hand would wait for their threads in the child
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # later Pythons warn of forks
        child = os.fork()
    if child == 0:
        try:
            said = f"gave {work()!r}"
        except BaseException as error:  # whatever it is, the test is told
            said = f"{type(error).__name__}: {error}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    ends = time.monotonic() + PATIENCE
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > ends:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "hangs"
        time.sleep(0.005)
    with os.fdopen(reader, "rb") as pipe:
        return pipe.read().decode()


def test_an_executable_is_of_the_process_that_loaded_it(chain_pef, x):
    executables = [sambarun.load(chain_pef, threads=2)]
    expected = executables[0].run({"x": x})
    with executables[0]._held():  # whoever held it while it was forked
        refused = in_a_fork(lambda: executables[0].run({"x": x}))
    assert refused.startswith("RunError: This executable is of the process that this one was")
    for attempt in (executables[0].clone, executables[0].memory, lambda: executables[0].read("x")):
        assert in_a_fork(attempt) == refused
    assert in_a_fork(executables[0].close) == "gave None"

    def anew() -> bool:
        executables.pop()
        gc.collect()  # sessions must not go: they would wait for threads that are not there
        with sambarun.load(chain_pef, threads=2) as own:
            return all(np.array_equal(own.run({"x": x})[key], expected[key]) for key in expected)

    assert in_a_fork(anew) == "gave True"
    with executables[0] as executable:
        assert executable.run({"x": x}).keys() == expected.keys()


def test_what_a_fork_forgets_stays_for_its_parent(chain_pef, x):
    with sambarun.load(chain_pef) as same:
        program = same.program
    executables = [sambarun.load(program)]

    def forget() -> None:
        executables.pop().close()
        gc.collect()

    assert in_a_fork(forget) == "gave None"
    with executables[0] as executable:
        executable.run({"x": x})  # reads the file of the program for the first time
    with pytest.raises(RunError, match="has been closed"):
        executable.run({"x": x})
