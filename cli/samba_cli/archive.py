"""Results of a run as a file: `.npz`, `.npy`, or `.safetensors`."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pef.files import replacing
from pef.wording import listed
from sambarun.training.tensor_file import write

from .shell import Wrong

Array = npt.NDArray[Any]

_NAMES_SHOWN = 5
_FROM_A_PACKAGE = 2
"""What `numpy.dtype.isbuiltin` is for a type that another package has registered."""


def check_ending(output: str) -> None:
    """Raise `Wrong` for a name whose ending is not that of a kind of file that `save` writes."""
    if Path(output).suffix not in _WRITERS:
        raise Wrong(
            f"--output {output}: its ending says what to write; give .npz, .npy for a single "
            f"result, or .safetensors."
        )


def check_checkpoint(path: str) -> None:
    """Raise `Wrong` for a name whose ending is not that of checkpoints."""
    if Path(path).suffix != ".safetensors":
        raise Wrong(f"--save {path}: a checkpoint is a .safetensors file; give it that ending.")


def save(outputs: Mapping[str, object], output: str) -> list[str]:
    """Write the results as the ending of `output` says, whole or not at all; return their names.

    The items of a sequence are stored as `name.0`, `name.1` and so on, a map as two arrays,
    `name.keys` and `name.values`; an absent optional is left out. In `.npz` and `.npy`, strings are
    stored with a fixed width, so that numpy reads them without pickle, and types that numpy lacks
    (bfloat16, float8) as raw elements of their size. Raises `OSError` if the file cannot be
    written, and `Wrong` if files of its kind do not hold the results.
    """
    found = dict(pair for name, value in outputs.items() for pair in arrays(name, value))
    with replacing(output) as temporary:
        _WRITERS[Path(output).suffix](temporary, found, output)
    return list(found)


def _save_npz(path: Path, found: Mapping[str, Array], output: str) -> None:
    del output
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in found.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, _storable(array), allow_pickle=False)


def _save_npy(path: Path, found: Mapping[str, Array], output: str) -> None:
    if len(found) != 1:
        names = listed(list(found), _NAMES_SHOWN, ", ") or "none"
        raise Wrong(
            f"--output {output}: an .npy holds one array, and the results are {len(found)} "
            f"({names}); give an .npz."
        )
    with path.open("wb") as file:
        np.lib.format.write_array(file, _storable(*found.values()), allow_pickle=False)


def _save_safetensors(path: Path, found: Mapping[str, Array], output: str) -> None:
    tensors = {name: (array.dtype.name, array) for name, array in found.items()}
    try:
        with path.open("wb") as file:
            write(file, tensors, {})
    except ValueError as error:
        raise Wrong(f"--output {output}: {error}; give an .npz.") from error


_WRITERS = {".npz": _save_npz, ".npy": _save_npy, ".safetensors": _save_safetensors}


def arrays(name: str, value: object) -> list[tuple[str, Array]]:
    """Return the arrays in a result with their names in an archive."""
    if value is None:
        return []
    if isinstance(value, dict):
        parts = {"keys": [*value], "values": [*value.values()]}
        return [(f"{name}.{part}", np.asarray(found)) for part, found in parts.items()]
    if isinstance(value, (list, tuple)):
        items = enumerate(value)
        return [pair for number, item in items for pair in arrays(f"{name}.{number}", item)]
    return [(name, np.asarray(value))]


def _storable(array: Array) -> Array:
    if array.dtype.kind == "O":
        return array.astype(str)
    if array.dtype.isbuiltin == _FROM_A_PACKAGE:
        # numpy has to read it back without the package that brought the type.
        return array.view(np.dtype((np.void, array.dtype.itemsize)))
    return array
