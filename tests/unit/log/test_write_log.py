"""Writing the log: whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pef.program import Program
from pef.report import report
from sambac import CompileError
from sambac.emit.producer import log_path, write_log

Make = Callable[..., Program]


def test_it_lies_beside_the_pef(program_of: Make, tmp_path: Path) -> None:
    written = write_log(report(program_of(["a"])), tmp_path / "m.pef")
    assert written == log_path(tmp_path / "m.pef") == tmp_path / "m.pef.log"
    assert list(tmp_path.iterdir()) == [written]
    assert written.read_text().endswith("\n")


def test_a_log_that_cannot_be_written_leaves_no_older_one(
    program_of: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = tmp_path / "m.pef.log"
    stale.write_text("of another program")

    def full(self: Path, *_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(CompileError, match=r"was written, but its log .* No space left on device"):
        write_log(report(program_of(["a"])), tmp_path / "m.pef")
    assert list(tmp_path.iterdir()) == []
