"""The profiler of the host, and that of the runtime."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sambaflow.samba import profiler as module
from sambaflow.samba.profiler import Profiler, profiled, run_event
from sambaflow.samba.run.runtime_profile import VARIABLE, RuntimeProfile
from sambarun.execution.spans import Span


class _Clock:
    """A clock that goes on by the next step each time somebody looks."""

    def __init__(self, *steps: float) -> None:
        self._steps = iter(steps)
        self._now = 100.0

    def __call__(self) -> float:
        self._now += next(self._steps)
        return self._now


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Profiler]:
    """Three events called fwd, of 4, 1 and 3 seconds, and one called opt, of half a second."""
    monkeypatch.setattr(module, "perf_counter", _Clock(0, 4, 9, 1, 9, 3, 9, 0.5))
    profiler = Profiler()
    profiler.start_profile()
    for name in ("fwd", "fwd", "fwd", "opt"):
        profiler.end_event(profiler.start_event(name))
    return profiler


def test_latencies_are_means(timed: Profiler) -> None:
    assert timed.get_latencies(["fwd", "opt"]) == pytest.approx({"fwd": 8 / 3, "opt": 0.5})
    assert timed.get_latencies(["fwd"], 1) == pytest.approx({"fwd": 2.0})
    assert timed._get_iter_times("fwd", 0) == pytest.approx([4, 1, 3])


def test_throughputs_are_samples_a_second(timed: Profiler) -> None:
    assert timed.get_throughputs(["fwd"], 16, 1) == pytest.approx({"fwd": 8.0})


def test_events_that_were_not_measured_are_told(timed: Profiler) -> None:
    with pytest.raises(KeyError, match="'fwd' 3 were measured, 3 are to be skipped"):
        timed.get_latencies(["fwd"], 3)
    with pytest.raises(KeyError, match="measured were fwd, opt"):
        timed.get_latencies(["bwd"])


def test_the_report_has_a_row_for_each_event(timed: Profiler, tmp_path: Path) -> None:
    timed.save(tmp_path / "profile.txt")
    head, *rows = (tmp_path / "profile.txt").read_text().splitlines()
    assert head.split()[:2] == ["event", "count"]
    assert [row.split()[:3] for row in rows] == [
        ["fwd", "3", "8.000000"],
        ["opt", "1", "0.500000"],
    ]


def test_nothing_is_kept_while_it_is_off() -> None:
    profiler = Profiler()
    assert profiler.start_event("a") is None
    with profiler.event("b"):
        pass
    profiler.start_profile()
    handle = profiler.start_event("c")
    profiler.stop_profile()
    profiler.end_event(handle)
    assert len(profiler._get_iter_times("c")) == 1
    assert not profiler._get_iter_times("b")
    profiler.start_profile()
    assert not profiler._get_iter_times("c")


def test_a_block_counts_even_if_it_fails() -> None:
    profiler = Profiler()
    profiler.start_profile()
    with pytest.raises(ZeroDivisionError), profiler.event("a"):
        1 / 0  # noqa: B018  # what fails is the point
    assert len(profiler._get_iter_times("a")) == 1


def test_a_profiled_block_writes_a_file_or_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profiler = Profiler()
    for target in (tmp_path / "dump.txt", None):
        with profiled(profiler, target):
            assert profiler.enabled
            with profiler.event("a"):
                pass
        assert not profiler.enabled
    printed = capsys.readouterr().out.splitlines()
    written = (tmp_path / "dump.txt").read_text().splitlines()
    for lines in (printed, written):
        assert [line.split()[0] for line in lines] == ["event", "a"]


@pytest.mark.parametrize(
    ("types", "name"),
    [
        ((), "SAMBA_SESSION_RUN"),
        ("fwd", "SAMBA_SESSION_RUN_[FWD]"),
        (["bckwd", "opt"], "SAMBA_SESSION_RUN_[BCKWD,OPT]"),
    ],
)
def test_runs_are_called_after_their_sections(types: str | list[str], name: str) -> None:
    assert run_event(types) == name


_SPANS = [
    Span(0, 1, "forward", "FWD", 0, 2_000_000),
    Span(1, 0, "update", "OPT", 2_000_000, 500_000),
    Span(0, 1, "forward", "FWD", 0, 4_000_000),
]


@pytest.mark.parametrize("level", ["SUMMARY", "DETAILED"])
def test_the_runtime_profile_lists_sections_and_functions(
    level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, level)
    profile = RuntimeProfile()
    profile.start()
    assert profile.enabled
    sorted([3, 1, 2])
    profile.add(_SPANS)
    profile.end(tmp_path / "log")
    assert not profile.enabled
    text = (tmp_path / "log").read_text()
    lines = [line.split() for line in text.splitlines()]
    assert lines[1] == ["0", "OPT", "1", "0.5000", "0.5000", "0.5000", "0.5000", "update"]
    assert lines[2] == ["1", "FWD", "2", "6.0000", "3.0000", "2.0000", "4.0000", "forward"]
    assert (["1", "0", "2.0000", "0.5000", "update"] in lines) == (level == "DETAILED")
    assert "built-in method builtins.sorted" in text
    assert capsys.readouterr().out.startswith("Profiled for ")


def test_the_timer_can_be_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, "SUMMARY")
    profile = RuntimeProfile()
    profile.start(timer_enabled=False)
    profile.end(tmp_path / "log")
    assert not capsys.readouterr().out


def test_without_the_variable_nothing_is_profiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    profile = RuntimeProfile()
    profile.start()
    assert not profile.enabled
    profile.end(tmp_path / "log")
    assert not (tmp_path / "log").exists()


def test_another_level_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "ALL")
    with pytest.raises(ValueError, match="'ALL', expected SUMMARY or DETAILED"):
        RuntimeProfile().start()
