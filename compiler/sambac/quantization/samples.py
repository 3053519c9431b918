"""What a user gives to calibrate with: batches of a model's inputs in an .npz file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import onnx_ir as ir

from pef import dtypes
from pef.foreign import reading, why
from pef.wording import did_you_mean, listed
from sambac.errors import CompileError
from sambac.graph.constants import Array

Batch = Mapping[str, Array]
_OPTION = "calibrate (--calibrate)"


@dataclass(frozen=True)
class SampledPort:
    """An `end` of a model: its name, its element type and sizes, None where one is open."""

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int | None, ...]
    end: Literal["input", "output"] = "input"


def read_samples(
    path: str | os.PathLike[str], inputs: Mapping[str, ir.Value], optional: Sequence[str]
) -> list[Batch]:
    """Return the batches in the file at `path`, for the `inputs` of a model by their public names.

    An array is of one batch, with the sizes of its input, or of several: the first axis holds them
    one after another, or is one more. All have equally many. Inputs that are `optional` may be
    left out. Raises `CompileError` with all that is wrong.
    """
    arrays = read_arrays(path, _OPTION)
    missing = [name for name in inputs if name not in arrays and name not in optional]
    problems = [f"there is no array '{name}'" for name in missing]
    problems += [
        f"'{name}' is no input of the model{did_you_mean(name, inputs)}"
        for name in arrays
        if name not in inputs
    ]
    batches: dict[str, list[Array]] = {}
    for name in arrays.keys() & inputs.keys():
        found = split(arrays[name], port_of(name, inputs[name]))
        if isinstance(found, str):
            problems.append(found)
        else:
            batches[name] = found
    counts = {name: len(parts) for name, parts in batches.items()}
    if len({*counts.values()}) > 1:
        spelled = listed([f"'{name}' has {count}" for name, count in sorted(counts.items())])
        problems.append(f"inputs have different numbers of batches: {spelled}")
    if problems:
        raise CompileError(f"{_OPTION}: {path}: {listed(sorted(problems))}.")
    count = max(map(len, batches.values()), default=1)
    return [
        {str(inputs[name].name): parts[at] for name, parts in sorted(batches.items())}
        for at in range(count)
    ]


def read_arrays(path: str | os.PathLike[str], option: str) -> dict[str, Array]:
    """Return the arrays of the file at `path`, which `option` names; else raise `CompileError`."""
    place = Path(path)
    if place.exists() and not (place.is_file() or place.is_dir()):
        raise CompileError(
            f"{option}: {path} is a device or pipe; store the arrays in a file and give that."
        )
    try:
        with open(path, "rb") as file, reading(partial(_damaged, path, option)):
            stored = np.load(file, allow_pickle=False)
            arrays = None if isinstance(stored, np.ndarray) else {**stored}
    except OSError as error:
        raise CompileError(f"{option}: cannot read {path}: {error.strerror}.") from error
    if arrays is None:
        raise CompileError(
            f"{option}: {path} is a single array; make an .npz of arrays by their names: "
            "numpy.savez(FILE, NAME=array)."
        )
    found: Mapping[str, object] = arrays
    odd = [name for name, array in found.items() if not isinstance(array, np.ndarray)]
    if odd:
        raise CompileError(
            f"{option}: {path}: {listed(odd)}: no array; store arrays alone, with numpy.savez."
        )
    return arrays


def _damaged(path: str | os.PathLike[str], option: str, error: Exception) -> CompileError:
    """Return what is said of a file that numpy cannot read; it takes anything for a pickle."""
    text = str(error)
    if "Object arrays" in text:
        return CompileError(
            f"{option}: cannot read {path}: it holds Python objects; numbers were expected."
        )
    reason = "" if "pickle" in text else f" ({why(error)})"
    return CompileError(f"{option}: cannot read {path}: it is no .npz file, or damaged{reason}.")


def port_of(name: str, value: ir.Value) -> SampledPort:
    """Return what `value` takes or gives under a public `name`, as an input."""
    assert value.dtype is not None
    storage = dtypes.BY_NUMBER[int(value.dtype)].storage
    sizes = tuple(dim if isinstance(dim, int) else None for dim in value.shape or ())
    return SampledPort(name, np.dtype(storage), sizes)


def split(array: Array, port: SampledPort) -> list[Array] | str:
    """Return the batches in `array`, or what is wrong with it."""
    if array.dtype != port.dtype:
        return f"'{port.name}' is {array.dtype}, and the {port.end} {port.dtype}"
    if array.size == 0:
        return f"'{port.name}' is empty"
    if _fits(array.shape, port.shape):
        return [array]
    if _fits(array.shape[1:], port.shape):
        return [np.asarray(part) for part in array]  # parts of a vector are no arrays
    first = port.shape[0] if port.shape else None
    if first and len(array.shape) == len(port.shape) and array.shape[0] % first == 0:
        parts = np.split(array, array.shape[0] // first)
        if _fits(parts[0].shape, port.shape):
            return parts
    wanted = "x".join("?" if size is None else str(size) for size in port.shape)
    found = "x".join(map(str, array.shape))
    return f"'{port.name}' is {found or 'a number'}, and the {port.end} {wanted or 'a number'}"


def _fits(shape: Sequence[int], wanted: Sequence[int | None]) -> bool:
    return len(shape) == len(wanted) and all(
        size in (None, given) for given, size in zip(shape, wanted, strict=True)
    )
