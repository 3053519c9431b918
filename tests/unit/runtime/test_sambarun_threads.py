"""Who gets how many threads, and what they do while they wait."""

from __future__ import annotations

import onnxruntime
import pytest

import sambarun
from sambarun.sessions.threads import Threads, choose

STOP, SPIN = "session.force_spinning_stop", "session.intra_op.allow_spinning"


def configured(threads: Threads, sessions: int) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    threads.configure(options, sessions)
    return options


def test_a_single_session_spins_only_while_it_runs():
    options = configured(Threads(), 1)
    assert options.use_per_session_threads
    assert options.intra_op_num_threads == 0
    assert options.get_session_config_entry(STOP) == "1"


def test_many_sessions_do_not_spin():
    options = configured(Threads(2), 20)
    assert options.intra_op_num_threads == 2
    assert options.get_session_config_entry(SPIN) == "0"


@pytest.mark.parametrize(("limit", "sessions", "expected"), [(64, 100, 5), (4, 5000, 1), (3, 9, 3)])
def test_very_many_sessions_share_the_threads(limit, sessions, expected):
    assert configured(Threads(limit), sessions).intra_op_num_threads == expected


def test_sessions_of_one_pool_have_no_threads():
    assert not configured(Threads(shared=True), 3).use_per_session_threads


def test_choosing():
    assert choose(None, own_process=False) == Threads()
    assert choose(3, own_process=False) == Threads(3)


@pytest.mark.parametrize("count", [0, -1, 257, 10**30, True])
def test_a_number_of_threads_that_no_machine_has_is_an_error(chain_pef, count):
    said = f"^threads is {count}; a whole number from 1 to 256, or None was expected"
    with pytest.raises(sambarun.RunError, match=said):
        sambarun.load(chain_pef, threads=count)
