"""MNIST from files that are already on the disk."""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset

from pef.foreign import reading, why
from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.arguments.kinds import (
    CALLABLE,
    MAPPING,
    OPTIONS,
    ArgumentKind,
    instance,
)

__all__ = ["MNIST", "Transform", "dataset_transform", "prepare_dataloader"]

Transform = Callable[[object], torch.Tensor]
Bytes = npt.NDArray[np.uint8]

_MEAN, _DEVIATION = 0.1307, 0.3081
_FOLDER_OPTIONS = ("data_dir", "data_folder", "data_path")
_SUBFOLDERS = ("", "MNIST/raw", "raw")
_ARCHIVE = "mnist.npz"
_PARTS = {"train": "train", "test": "t10k"}
_BYTES = 0x08
_DATA = instance(Dataset, "a data set of torch").or_none()


@checked(
    args=ArgumentKind("options, or a dict of them", lambda v: OPTIONS.fits(v) or MAPPING.fits(v))
)
def dataset_transform(args: Namespace | Mapping[str, object]) -> Transform:
    """Return what turns an image into the input of a model: a function to a float tensor.

    An image is an array of bytes [height, width], or a PIL image of that. The result is its pixels
    in a row, [height * width], scaled to 0..1 and then to MNIST's mean 0 and deviation 1; with an
    option `dtype` that names a type of torch (`bfloat16`), in that type.
    """
    options = vars(args) if isinstance(args, Namespace) else args
    dtype = _dtype(str(options.get("dtype") or "float32"))

    def transform(image: object) -> torch.Tensor:
        pixels = torch.from_numpy(np.array(image, dtype=np.float32)) / 255.0
        return ((pixels.flatten() - _MEAN) / _DEVIATION).to(dtype)

    return transform


class MNIST(Dataset[tuple[torch.Tensor, int]]):
    """Images and labels of MNIST, `part` train or test, in `folder`.

    The folder, or MNIST/raw in it, holds the four IDX files, packed by gzip or not, or `mnist.npz`
    with x_train, y_train, x_test and y_test. Nothing is downloaded: raises FileNotFoundError that
    says which files were looked for, ValueError if one is no such file.
    """

    @checked(transform=CALLABLE.or_none())
    def __init__(
        self, folder: str | os.PathLike[str], part: str, transform: Transform | None = None
    ) -> None:
        self.data, self.targets = _read(Path(folder), part)
        self._transform = transform or dataset_transform({})

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self._transform(self.data[index]), int(self.targets[index])


@checked(train_dataset=_DATA, eval_dataset=_DATA)
def prepare_dataloader(
    params: Mapping[str, object],
    train_dataset: Dataset[tuple[torch.Tensor, int]] | None = None,
    eval_dataset: Dataset[tuple[torch.Tensor, int]] | None = None,
) -> tuple[
    DataLoader[tuple[torch.Tensor, int]],
    DataLoader[tuple[torch.Tensor, int]],
]:
    """Return loaders for training, shuffled, and for testing, in batches of `params['batch_size']`.

    Data sets that are not given are MNIST in the folder `params['data_dir']` (or `data_folder`,
    `data_path`). A last batch that is not full is left out: the shape is fixed when compiled.
    """
    transform = dataset_transform(params)
    size = int(str(params.get("batch_size", 1)))
    train = train_dataset or MNIST(_folder(params), "train", transform)
    test = eval_dataset or MNIST(_folder(params), "test", transform)
    return (
        DataLoader(train, batch_size=size, shuffle=True, drop_last=True),
        DataLoader(test, batch_size=size, shuffle=False, drop_last=True),
    )


def _dtype(name: str) -> torch.dtype:
    known = {key: value for key, value in vars(torch).items() if isinstance(value, torch.dtype)}
    if name not in known:
        raise ValueError(f"dtype is {name!r}, expected a type of torch such as bfloat16")
    return known[name]


def _folder(params: Mapping[str, object]) -> str:
    for option in _FOLDER_OPTIONS:
        if params.get(option):
            return str(params[option])
    raise ValueError(f"the folder of MNIST is missing: give one of {', '.join(_FOLDER_OPTIONS)}")


def _read(folder: Path, part: str) -> tuple[Bytes, Bytes]:
    """Return images [n, height, width] and labels [n]."""
    if part not in _PARTS:
        raise ValueError(f"part is {part!r}, expected one of {', '.join(_PARTS)}")
    if (folder / _ARCHIVE).is_file():

        def refuse(error: Exception) -> ValueError:
            return ValueError(f"{folder / _ARCHIVE} is no archive of MNIST: {why(error)}")

        with reading(refuse), np.load(folder / _ARCHIVE) as archive:
            images, labels = np.asarray(archive[f"x_{part}"]), np.asarray(archive[f"y_{part}"])
    else:
        prefix = _PARTS[part]
        images = _idx(_find(folder, f"{prefix}-images-idx3-ubyte"))
        labels = _idx(_find(folder, f"{prefix}-labels-idx1-ubyte"))
    if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
        raise ValueError(f"{folder}: images {images.shape} and labels {labels.shape} do not match")
    return images, labels


def _find(folder: Path, name: str) -> Path:
    tried = [folder / sub / (name + end) for sub in _SUBFOLDERS for end in ("", ".gz")]
    found = next((path for path in tried if path.is_file()), None)
    if found is None:
        raise FileNotFoundError(
            f"{folder} has neither {_ARCHIVE} nor {name}[.gz], also not in MNIST/raw; "
            f"put the files of MNIST there, nothing is downloaded"
        )
    return found


def _idx(path: Path) -> Bytes:
    """Return the array in a file of the IDX format: 0 0 type rank, sizes, then bytes."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path} is not packed by gzip, or damaged: {why(error)}") from error
    rank = content[3] if len(content) > 3 else 0
    header = 4 + 4 * rank
    if len(content) < header or content[:3] != bytes((0, 0, _BYTES)):
        raise ValueError(f"{path} is no IDX file of bytes")
    shape = struct.unpack(f">{rank}I", content[4:header])
    if len(content) - header != int(np.prod(shape)):
        raise ValueError(f"{path} has {len(content) - header} bytes, expected {shape} of them")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)
