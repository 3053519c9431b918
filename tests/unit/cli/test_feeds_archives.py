"""Archives of arrays: members that are damaged, or no arrays at all."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from samba_cli.feeds import open_archive
from samba_cli.shell import Wrong

CURE = "make an .npz"


def archive(folder: Path, **members: bytes) -> str:
    path = folder / "x.npz"
    np.savez(path, good=np.ones(3))
    with zipfile.ZipFile(path, "a") as opened:
        for name, content in members.items():
            opened.writestr(name.replace("__", "."), content)
    return str(path)


@pytest.mark.parametrize(
    ("member", "content"),
    [
        ("readme__txt", b"hello"),
        ("odd__npy", b"hello"),
        ("odd__npy", b""),
        ("odd__npy", b"\x93NUMPY\x01\x00\x10\x00{'descr': [[[[[["),
        ("odd__npy", b"\x93NUMPY\x01\x00\x76\x00" + b"(" * 118),
        ("odd__npy", b"\x93NUMPY\x63\x00\x76\x00" + b" " * 118),
        (
            "odd__npy",
            b"\x93NUMPY\x01\x00\x76\x00"
            + b"{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }".ljust(117)
            + b"\n",
        ),
    ],
)
def test_a_foreign_member_is_refused_when_it_is_read(
    tmp_path: Path, member: str, content: bytes
) -> None:
    path = archive(tmp_path, **{member: content})
    with open_archive(path, CURE) as arrays:
        assert len(arrays) == 2
        assert "none" not in arrays
        np.testing.assert_array_equal(arrays["good"], np.ones(3))
        name = next(name for name in arrays if name != "good")
        with pytest.raises(Wrong, match=r"x\.npz: .* is no array"):
            arrays[name]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"PK\x05\x06" + bytes(17), b"\x93NUMPY"])
def test_a_file_that_is_no_archive(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(content)
    with pytest.raises(Wrong, match=r"x\.npz is no array file"), open_archive(str(path), CURE):
        pass


def test_a_pipe_is_told_as_one(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "x.npz")
    with pytest.raises(Wrong, match="is a device or pipe"), open_archive(str(pipe), CURE):
        pass
