"""Channels: items come in order, once each, and nobody who waits is forgotten."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import pytest

from sambahost import crew
from sambahost.crew import Channel, StoppedError

_COUNT = 5000


@pytest.mark.parametrize("size", [0, 1, 8])
def test_who_waits_is_woken(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits end by being woken: a thread that looked again by itself would come too late."""
    monkeypatch.setattr(crew, "_LOOK", 600)
    there, back = Channel[int](size), Channel[int](size)
    stopped, found = threading.Event(), list[int]()

    def answer() -> None:
        for _ in range(_COUNT):
            back.put(there.get(stopped), stopped)

    def take() -> None:
        found.extend(back.get(stopped) for _ in range(_COUNT))

    threads = [threading.Thread(target=work, daemon=True) for work in (answer, take)]
    for thread in threads:
        thread.start()
    for number in range(_COUNT):
        there.put(number, stopped)
    for thread in threads:
        thread.join(60)
    assert found == [*range(_COUNT)]


def test_who_leaves_waits_for_nothing_that_is_python() -> None:
    def work(_index: int) -> None:
        began.set()
        while True:
            with suppress(Exception):  # as compilers do, and many a library
                time.sleep(0.001)

    began = threading.Event()
    made = crew.Crew(["one"], [], lambda: None, RuntimeError)
    made.order(lambda: [crew.Action(work)])
    assert began.wait(60)
    made.interrupt()
    assert not any(thread.is_alive() for thread in made._threads)


def test_waits_end_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "_LOOK", 0.001)
    full, stopped, ended = Channel[int](1), threading.Event(), list[str]()
    full.add(1)

    def waits(name: str, call: object) -> None:
        try:
            call()  # type: ignore[operator]  # a function
        except StoppedError:
            ended.append(name)

    calls = {"get": lambda: Channel[int]().get(stopped), "put": lambda: full.put(2, stopped)}
    threads = [threading.Thread(target=waits, args=call) for call in calls.items()]
    for thread in threads:
        thread.start()
    stopped.set()
    for thread in threads:
        thread.join(60)
    assert sorted(ended) == ["get", "put"]
    assert (full.size(), full.peek(), full.take(), full.take(), full.peek()) == (
        1,
        1,
        1,
        None,
        None,
    )
