"""Replacing a file: whole or not at all, through links, and never a device."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pef.files import replacing


def test_a_failure_leaves_the_older_file_alone(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing(target) as temporary:
        _interrupted(temporary)
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def _interrupted(file: Path) -> None:
    file.write_text("half")
    raise KeyboardInterrupt


def test_the_file_behind_a_link_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "real")
    with replacing(tmp_path / "link") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "real").read_text() == "new"


def test_what_is_no_file_is_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for target in (pipe, tmp_path):
        with pytest.raises(OSError, match="no regular file"), replacing(target):
            pytest.fail("the block must not run")
    assert pipe.is_fifo()


def test_a_failure_names_the_file_that_was_wanted(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="disk full") as full, replacing(tmp_path / "file"):
        raise OSError(None, "disk full")
    assert full.value.filename == str(tmp_path / "file")
    with pytest.raises(FileNotFoundError) as absent, replacing(tmp_path / "no" / "file"):
        pytest.fail("the block must not run")
    assert absent.value.filename == str(tmp_path / "no" / "file")
