"""Pinned memory is remembered, and decides nothing."""

from __future__ import annotations

from sambaflow.samba.tensors import pinned


def test_pinned_memory_is_on_from_enable_to_disable() -> None:
    assert not pinned.use_pinned_memory()
    pinned.enable_pinned_memory()
    assert pinned.use_pinned_memory()
    pinned.disable_pinned_memory()
    assert not pinned.use_pinned_memory()


def test_fast_access_is_kept_by_name() -> None:
    pinned.set_fast_access("image")
    assert pinned.is_fast_access("image")
    assert not pinned.is_fast_access("label")
    pinned.set_fast_access("image", wanted=False)
    assert not pinned.is_fast_access("image")
    pinned.forget()


def test_tracing_marks_what_nobody_has_unmarked() -> None:
    pinned.set_fast_access("label", wanted=False)
    pinned.mark_traced(["image", "label"])
    assert pinned.is_fast_access("image")
    assert not pinned.is_fast_access("label")
    pinned.enable_pinned_memory()
    pinned.forget()
    assert not pinned.is_fast_access("image")
    assert not pinned.use_pinned_memory()
