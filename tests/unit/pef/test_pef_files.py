"""Replacing a file: whole or not at all, through links, and never a device."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pef.files import in_text, replacing


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


_WRITER = """
import sys, time
from pef.files import replacing
with replacing(sys.argv[1]) as temporary:
    temporary.write_text("half")
    print("writing", flush=True)
    sys.stdin.read()
"""


def _writer(target: Path) -> subprocess.Popen[str]:
    """Start a process that writes `target` until its input ends."""
    command = [sys.executable, "-c", _WRITER, str(target)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    return process


@pytest.mark.parametrize("name", ["net.safetensors", "a" * 250, "b"])
def test_what_a_killed_writer_has_left_is_removed_by_the_next(tmp_path: Path, name: str) -> None:
    target, other = tmp_path / name, tmp_path / f"x{name[:-1]}"
    dead, alive, elsewhere = _writer(target), _writer(target), _writer(other)
    for process in (dead, elsewhere):
        process.kill()
        process.communicate()
    assert len(os.listdir(tmp_path)) == 3
    with replacing(target) as temporary:
        temporary.write_text("mine")
        assert len(os.listdir(tmp_path)) == 3  # two at work, and what is of another target
    alive.communicate()
    assert alive.returncode == 0  # the one that was at work has not been disturbed
    assert target.read_text() == "half"
    with replacing(other) as temporary:
        temporary.write_text("new")
    assert sorted(os.listdir(tmp_path)) == sorted([target.name, other.name])


def test_files_that_only_look_alike_are_left_alone(tmp_path: Path) -> None:
    number = "0123456789abcdef"
    others = [
        ".file.tmp.txt",
        ".file.notes.tmp",
        f".file2.{number}.tmp",
        f"file.{number}.tmp",
    ]
    for name in others:
        (tmp_path / name).write_text("mine")
    (tmp_path / ".file.0123456789abcdef.tmp").mkdir()
    with replacing(tmp_path / "file"):
        pass
    assert sorted(os.listdir(tmp_path)) == sorted([*others, ".file.0123456789abcdef.tmp", "file"])


def test_many_writers_of_one_target(tmp_path: Path) -> None:
    def write(number: int) -> None:
        for _ in range(20):
            with replacing(tmp_path / "file") as temporary:
                temporary.write_text(str(number) * 100)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert os.listdir(tmp_path) == ["file"]
    assert len(set((tmp_path / "file").read_text())) == 1


def test_a_folder_that_nobody_may_list_takes_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    with replacing(tmp_path / "file") as temporary:
        temporary.write_text("new")
        monkeypatch.setattr(os, "open", refuse)
    assert (tmp_path / "file").read_text() == "new"


def test_bytes_of_names_that_are_no_text_are_spelled_out() -> None:
    assert in_text(os.fsdecode(b"caf\xe9 \xc3\xa9")) == "caf\\xe9 \xe9"
