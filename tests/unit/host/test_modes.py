"""The modes that devices put modules into, each in a thread of its own."""

from __future__ import annotations

import threading

from torch import nn

from sambahost.models import in_mode


def test_a_mode_lasts_though_another_thread_ends_its_own() -> None:
    module, seen = nn.Dropout(), list[bool]()
    entered, ended = threading.Event(), threading.Event()

    def other() -> None:
        with in_mode(module, training=False):
            entered.set()
            ended.wait(60)
            seen.append(module.training)

    thread = threading.Thread(target=other)
    with in_mode(module, training=False):
        thread.start()
        entered.wait(0.2)  # it would enter at once
    ended.set()
    thread.join(60)
    assert seen == [False]
    assert module.training


def test_modes_may_be_inside_of_each_other() -> None:
    module = nn.Dropout()
    with in_mode(module, training=False), in_mode(module, training=True):
        assert module.training
    assert module.training
