"""MNIST from files, in each form they come in."""

from __future__ import annotations

import gzip
import struct
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from sambaflow.samba.utils.dataset.mnist import MNIST, dataset_transform, prepare_dataloader

_RNG = np.random.default_rng(0)
_SIZES = {"train": 7, "test": 5}
_DATA = {
    part: (
        _RNG.integers(0, 256, (size, 28, 28), np.uint8),
        _RNG.integers(0, 10, size).astype(np.uint8),
    )
    for part, size in _SIZES.items()
}


def _idx(array: np.ndarray) -> bytes:
    return (
        bytes((0, 0, 8, array.ndim))
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


def _write(folder: Path, form: str) -> None:
    if form == "npz":
        arrays = {f"{axis}_{p}": a for p, pair in _DATA.items() for axis, a in zip("xy", pair)}  # noqa: B905
        np.savez(folder / "mnist.npz", **arrays)
        return
    target = folder / "MNIST" / "raw" if form == "torchvision" else folder
    target.mkdir(parents=True, exist_ok=True)
    for part, (images, labels) in _DATA.items():
        prefix = {"train": "train", "test": "t10k"}[part]
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            content = _idx(array)
            if form == "gz":
                (target / f"{prefix}-{kind}-ubyte.gz").write_bytes(gzip.compress(content))
            else:
                (target / f"{prefix}-{kind}-ubyte").write_bytes(content)


@pytest.mark.parametrize("form", ["idx", "gz", "npz", "torchvision"])
@pytest.mark.parametrize("part", ["train", "test"])
def test_files_are_read(tmp_path: Path, form: str, part: str) -> None:
    _write(tmp_path, form)
    found = MNIST(tmp_path, part)
    assert len(found) == _SIZES[part]
    image, label = found[2]
    images, labels = _DATA[part]
    assert label == labels[2]
    torch.testing.assert_close(
        image, torch.from_numpy(((images[2].ravel() / 255 - 0.1307) / 0.3081).astype(np.float32))
    )


def test_loaders_give_full_batches(tmp_path: Path) -> None:
    _write(tmp_path, "npz")
    train, test = prepare_dataloader({"data_dir": str(tmp_path), "batch_size": 2})
    assert [len(labels) for _, labels in train] == [2, 2, 2]
    images, labels = next(iter(test))
    assert images.shape == (2, 784)
    assert labels.tolist() == _DATA["test"][1][:2].tolist()


def test_own_data_sets_are_taken(tmp_path: Path) -> None:
    _write(tmp_path, "npz")
    data = MNIST(tmp_path, "test")
    train, test = prepare_dataloader({"batch_size": 1}, data, data)
    assert (len(train), len(test)) == (5, 5)


@pytest.mark.parametrize("args", [{"dtype": "bfloat16"}, Namespace(dtype="bfloat16")])
def test_the_type_of_images(args: object) -> None:
    assert dataset_transform(args)(np.zeros((2, 2), np.uint8)).dtype is torch.bfloat16  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="dtype is 'int99'"):
        dataset_transform({"dtype": "int99"})


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"neither mnist\.npz nor train-images-idx3-ubyte"):
        MNIST(tmp_path, "train")
    with pytest.raises(ValueError, match="the folder of MNIST is missing"):
        prepare_dataloader({"batch_size": 1})
    with pytest.raises(ValueError, match="part is 'dev'"):
        MNIST(tmp_path, "dev")
    _write(tmp_path, "idx")
    whole = (tmp_path / "t10k-images-idx3-ubyte").read_bytes()
    for damaged, message in (
        (whole[:-1], "bytes, expected"),
        (b"\x1f" + whole, "no IDX"),
        (b"", "no IDX"),
    ):
        (tmp_path / "t10k-images-idx3-ubyte").write_bytes(damaged)
        with pytest.raises(ValueError, match=message):
            MNIST(tmp_path, "test")
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(_idx(_DATA["train"][0]))
    with pytest.raises(ValueError, match="do not match"):
        MNIST(tmp_path, "test")


@pytest.mark.parametrize(
    "damage",
    [
        lambda packed: b"no" + packed,
        lambda packed: packed[:-12],
        lambda packed: packed[:10] + b"\xff" * 40,
    ],
    ids=["no gzip", "cut", "changed"],
)
def test_packed_files_that_are_damaged(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    _write(tmp_path, "idx")
    whole = tmp_path / "train-images-idx3-ubyte"
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(damage(gzip.compress(whole.read_bytes())))
    whole.unlink()
    with pytest.raises(ValueError, match=r"ubyte\.gz is not packed by gzip, or damaged: "):
        MNIST(tmp_path, "train")
