"""Results of a run as an `.npz` file."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pef.files import replacing

Array = npt.NDArray[Any]

_FROM_A_PACKAGE = 2
"""What `numpy.dtype.isbuiltin` is for a type that another package has registered."""


def save(outputs: Mapping[str, object], output: str) -> None:
    """Write the results as an `.npz`, whole or not at all; raise `OSError` if that fails.

    The items of a sequence are stored as `name.0`, `name.1` and so on; an absent optional and
    maps, which numpy has no form for, are left out. Strings are stored with a fixed width, so that
    numpy reads them without pickle, and types that numpy lacks (bfloat16, float8) as raw elements
    of their size.
    """
    with replacing(output) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, value in outputs.items():
            for key, array in arrays(name, value):
                with archive.open(f"{key}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, _storable(array), allow_pickle=False)


def arrays(name: str, value: object) -> list[tuple[str, Array]]:
    """Return the arrays in a result with their names in an archive."""
    if value is None or isinstance(value, dict):
        return []
    if isinstance(value, (list, tuple)):
        items = enumerate(value)
        return [pair for number, item in items for pair in arrays(f"{name}.{number}", item)]
    return [(name, np.asarray(value))]


def holds_maps(value: object) -> bool:
    """Tell whether a result is a map or a sequence of maps."""
    return isinstance(value, dict) or (isinstance(value, list) and any(map(holds_maps, value)))


def _storable(array: Array) -> Array:
    if array.dtype.kind == "O":
        return array.astype(str)
    if array.dtype.isbuiltin == _FROM_A_PACKAGE:
        # numpy has to read it back without the package that brought the type.
        return array.view(np.dtype((np.void, array.dtype.itemsize)))
    return array
