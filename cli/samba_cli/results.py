"""What a run gave: a summary, a comparison with what was expected, a file of it."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pef.files import replacing
from pef.wording import listed
from sambarun.training.tensor_file import write

from .shell import Wrong

Array = npt.NDArray[Any]
_FIRST = 3
_UNWRAPPED = 1 << 30


def summary(outputs: Mapping[str, object]) -> list[str]:
    """Return a table of the results: name, dtype, shape, range, first values."""
    from pef.text import name_text, shape_text, table

    rows = []
    for name, value in outputs.items():
        if isinstance(value, np.ndarray):
            cells = (value.dtype.name, shape_text(value.shape), *_range(value), _first(value))
        else:
            cells = (_kind(value), "-", "-", "-", _first_map(value))
        rows.append((name_text(name), *cells))
    headers = ("output", "dtype", "shape", "min", "max", "first values")
    return table(headers, rows, ("min", "max"), _UNWRAPPED)


def _kind(value: object) -> str:
    if value is None:
        return "absent"
    if isinstance(value, dict):
        return f"map of {len(value)}"
    if not isinstance(value, (list, tuple)):
        return type(value).__name__
    items = " maps" if value and isinstance(value[0], dict) else ""
    return f"sequence of {len(value)}{items}"


def _range(array: Array) -> tuple[str, str]:
    """Return the smallest and the largest number, and how many are none."""
    if not array.size or array.dtype.kind in "OSU":
        return "-", "-"
    if array.dtype.kind == "c":
        array = np.abs(array)
    numbers = array.astype(np.float64) if array.dtype.kind not in "biuf" else array
    if numbers.dtype.kind != "f":
        return str(numbers.min()), str(numbers.max())
    unreal = int(np.isnan(numbers).sum())
    if unreal == numbers.size:
        return "nan", "nan"
    note = f" ({unreal} nan)" if unreal else ""
    return f"{np.nanmin(numbers):.5g}", f"{np.nanmax(numbers):.5g}{note}"


def _first(array: Array) -> str:
    values = array.reshape(-1)[:_FIRST].tolist()
    shown = " ".join(f"{x:.4g}" if isinstance(x, float) else str(x) for x in values)
    return shown + (" ..." if array.size > _FIRST else "") or "-"


def _first_map(value: object) -> str:
    """Return the first entries of a map, or of the first map of a sequence."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return _first_map(value[0]) + (" ..." if len(value) > 1 else "")
    if not isinstance(value, dict):
        return "-"
    shown = [f"{key!r}: {item:.4g}" for key, item in list(value.items())[:_FIRST]]
    return f"{{{', '.join(shown)}{', ...' if len(value) > _FIRST else ''}}}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Whether a result is what was expected, and the sentence that says so."""

    equal: bool
    text: str


def compare(name: str, came: object, expected: Array, rtol: float, atol: float) -> Comparison:
    """Compare a result with what was expected: |came - expected| <= atol + rtol * |expected|.

    NaN equals NaN. Numbers are compared, whatever their types are.
    """
    if not isinstance(came, np.ndarray):
        return Comparison(False, f"{name}: {_kind(came)} came, an array was expected")
    if came.shape != expected.shape:
        return Comparison(False, f"{name}: shape {came.shape} came, {expected.shape} was expected")
    if came.dtype.kind in "OSU" or expected.dtype.kind in "OSU":
        wrong = came.astype(str) != expected.astype(str)
        errors = ""
    else:
        wrong, errors = _numeric(_wide(came), _wide(expected, came.dtype), rtol, atol)
    if not wrong.any():
        return Comparison(True, f"{name}: as expected{errors}")
    at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    place = ",".join(str(int(index)) for index in at)
    count = f"{int(wrong.sum()):,} of {wrong.size:,} elements differ"
    where = f"{name}[{place}] is {came[at]}, expected {expected[at]}" if at else f"{name} differs"
    if not at:
        where = f"{name} is {came[()]}, expected {expected[()]}"
    return Comparison(False, f"{where}; {count}{errors}")


def _wide(array: Array, stored: np.dtype[Any] | None = None) -> Array:
    """Return `array` in the widest type of its kind; raw bits as what the result's type says."""
    if array.dtype.kind == "V" and stored is not None and array.dtype.itemsize == stored.itemsize:
        array = array.view(stored)
    if array.dtype.kind in "biu":
        return array
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _numeric(came: Array, expected: Array, rtol: float, atol: float) -> tuple[Array, str]:
    """Return where two arrays differ, and their largest errors in words."""
    error, size = _distance(came, expected), np.abs(expected).astype(np.float64)
    same = (came == expected) | (np.isnan(came) & np.isnan(expected))
    finite = np.isfinite(came) & np.isfinite(expected)
    with np.errstate(invalid="ignore"):
        wrong = ~same & ~(finite & (error <= atol + rtol * size))
    if not finite.any():
        return wrong, ""
    error, allowed = error[finite], (atol + rtol * size)[finite]
    return wrong, f" (max error {error.max():.3g}{_share(error, allowed)})"


def _share(error: Array, allowed: Array) -> str:
    """Return how much of what is allowed the worst error takes; nothing where none is allowed."""
    if (error[allowed == 0] > 0).any() or not error.any():
        return ""
    worst = np.divide(error, allowed, out=np.zeros_like(error), where=allowed > 0).max()
    share = f"{worst:,.3g} times" if worst > 1 else f"{worst:.0%} of"
    return f"; at worst {share} the tolerance"


def _distance(came: Array, expected: Array) -> Array:
    """Return |came - expected|; of integers exactly, however large they are."""
    if came.dtype.kind in "iu" and expected.dtype.kind in "iu":
        low, high = np.minimum(came, expected), np.maximum(came, expected)
        if low.dtype.kind in "iu":
            exact: Array = high.astype(np.uint64) - low.astype(np.uint64)
            return exact.astype(np.float64)
    with np.errstate(invalid="ignore"):
        difference: Array = np.abs(_real(came) - _real(expected))
    return difference.astype(np.float64)


def _real(array: Array) -> Array:
    return array if array.dtype.kind == "c" else array.astype(np.float64)


def expectation(word: str) -> tuple[str, str]:
    """Return the name and the file in `y=@y.npy`."""
    name, equals, file = word.partition("=@")
    if not equals or not name or not file:
        raise Wrong(f"--expect {word}: expected NAME=@FILE.npy.")
    return name, file


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
    written, and `Wrong` if files of its kind do not hold the results, or two would have one name.
    """
    pairs = [pair for name, value in outputs.items() for pair in arrays(name, value)]
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = listed([name for name in found if names.count(name) > 1], _NAMES_SHOWN, ", ")
        raise Wrong(
            f"--output {output}: two results would be called {twice}, where items of one are named "
            "as another is; rename an output of the model."
        )
    with replacing(output) as temporary:
        _WRITERS[Path(output).suffix](temporary, found, output)
    return list(found)


def _save_npz(path: Path, found: Mapping[str, Array], output: str) -> None:
    # The archive ends names at a NUL, and numpy reads `y` where it is asked for `y.npy`.
    lost = [
        name for name in found if "\0" in name or name.removesuffix(".npy") in found.keys() - {name}
    ]
    if lost:
        raise Wrong(
            f"--output {output}: an .npz cannot tell {listed(lost, _NAMES_SHOWN, ', ')} from other "
            f"names; give a .safetensors, or rename an output of the model."
        )
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
