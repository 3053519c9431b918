"""Checkpoints: the states of a training program as a safetensors file.

Its tensors bear the names that the model gives its parameters and buffers, those of tied weights
once for each name, so that these entries are a `state_dict` of PyTorch; beside them lie optimizer
state, gradients that accumulate, and argins, under the names of their symbols. The metadata says
which entries are the model's (`model`), whose optimizers (`optimizers`), how far training has come
(`steps`, `forwards`, `cursor`) and which program it was (`program`, the SHA-256 of its metadata,
which covers all content).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import NamedTuple, Protocol, cast

import numpy as np

import pef
from pef import dtypes
from pef.arguments import COUNT
from pef.files import replacing
from pef.foreign import reading, why
from pef.states import ZERO_KINDS
from pef.wording import did_you_mean, listed
from sambarun.arrays import Array
from sambarun.device.inputs import shape_text
from sambarun.device.state import StateStore
from sambarun.errors import RunError
from sambarun.execution.host_steps import Clock

from .data import Cursor
from .tensor_file import CHECKSUMS, CODES, damaged, write

_FORMAT = "1"
_MODEL = frozenset({pef.SymbolKind.WEIGHT, pef.SymbolKind.BUFFER})
_NUMBERS = frozenset({pef.SymbolKind.ARGIN, pef.SymbolKind.OPT_STATE})
_SHOWN = 20


class _Slice(Protocol):
    def get_dtype(self) -> str: ...
    def get_shape(self) -> list[int]: ...


class _File(Protocol):
    """What is used of an open safetensors file, which has no type hints of its own."""

    def keys(self) -> list[str]: ...
    def metadata(self) -> dict[str, str] | None: ...
    def get_slice(self, name: str) -> _Slice: ...
    def get_tensor(self, name: str) -> Array: ...


class Position(NamedTuple):
    """What a checkpoint tells beside tensors: how far training has come, and in which program.

    `program` is the hash of its metadata, empty where nobody has said it; `lacks` names the states
    of the loading program that the file does not have, and that are zeros therefore.
    """

    clock: Clock
    cursor: Cursor
    program: str
    lacks: tuple[str, ...] = ()


def save(path: str | os.PathLike[str], state: StateStore, position: Position) -> None:
    """Write a checkpoint, whole or not at all; equal states make equal files.

    Raises `RunError` if it cannot be written.
    """
    state.require(frozenset(state.views))
    names = state.entries()
    tensors = {
        name: (dtypes.BY_NUMBER[state.numbers[index]].name, state.views[index])
        for name, index in names.items()
    }
    kinds = state.kinds
    metadata = {
        "sambaflow_format": _FORMAT,
        "program": position.program,
        "model": json.dumps([name for name, index in names.items() if kinds[index] in _MODEL]),
        "optimizers": json.dumps(state.optimizers),
        "steps": str(position.clock.steps),
        "forwards": str(position.clock.forwards),
        "cursor": json.dumps(asdict(position.cursor)),
    }
    try:
        with replacing(path) as temporary, temporary.open("wb") as file:
            write(file, tensors, metadata)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"{os.fspath(path)} cannot be written: {reason}") from error


def load(path: str | os.PathLike[str], state: StateStore, clock: Clock) -> Position | None:
    """Fill `state` from a checkpoint or from a file with the model's entries alone; set `clock`.

    With the latter, optimizer state starts anew, argins stay and the result is None. A checkpoint
    may lack what other programs have left out (`StateStore.may_be_missing`), which is zeros then.
    Raises `RunError` that lists every entry that is missing, unknown, or of another shape or type;
    nothing is changed then.
    """
    # Imported here: few processes read checkpoints, and all wait for imports.
    from safetensors import safe_open

    name = os.fspath(path)

    def refuse(error: Exception) -> RunError:
        return RunError(f"{name} is no safetensors file, or a damaged one: {why(error)}")

    if os.path.exists(name) and not os.path.isfile(name):  # others can keep one waiting
        what = "a folder" if os.path.isdir(name) else "a device or pipe"
        raise RunError(f"{name} is {what}; give a .safetensors file.")
    try:
        with reading(refuse):
            opened = safe_open(name, framework="numpy")
        with opened as file:
            return _read(name, cast("_File", file), state, clock)
    except OSError as error:
        raise RunError(f"{name} cannot be read: {error.strerror or error}") from error


def _read(name: str, file: _File, state: StateStore, clock: Clock) -> Position | None:
    entries = state.entries()
    found = {key: entries.get(key) for key in file.keys()}  # noqa: SIM118  # no mapping
    beside = {index for index, kind in state.kinds.items() if kind not in _MODEL}
    whole = any(index in beside for index in found.values())
    problems = _differences(file, found, state, entries)
    missing = {
        index: key  # one name of those of a tied tensor
        for key, index in reversed(entries.items())
        if index not in found.values() and (whole or index not in beside)
    }
    metadata = file.metadata() or {}
    other = whole and metadata.get("program") != state.program_hash
    lacks = state.may_be_missing(frozenset(missing)) if other else frozenset()
    problems += [f"'{key}' is missing." for index, key in missing.items() if index not in lacks][
        ::-1
    ]
    if problems:
        problems[:0] = _other_optimizers(metadata, state)
        raise RunError(f"{name} does not fit the program. {listed(problems, _SHOWN, ' ')}")
    contents = _contents(name, file, found, metadata)
    position = _position(name, metadata) if whole else None
    if position:
        position = position._replace(lacks=tuple(missing[index] for index in sorted(lacks)))
    _require_numbers(name, contents, state)
    contents |= {index: np.zeros((), state.views[index].dtype) for index in lacks}
    anew = [] if whole else [index for index in beside if state.kinds[index] in ZERO_KINDS]
    reached = position.clock if position else Clock()
    state.take(anew, contents, partial(clock.take_from, reached))
    return position


def _differences(
    file: _File,
    found: Mapping[str, int | None],
    state: StateStore,
    entries: Mapping[str, int],
) -> list[str]:
    """Return a sentence for each entry that the program does not have in this type and shape."""
    problems = []
    for key, index in found.items():
        if index is None:
            problems.append(f"'{key}' is not in the program{did_you_mean(key, entries)}.")
            continue
        part = file.get_slice(key)
        came = (CODES.get(part.get_dtype(), part.get_dtype()), tuple(part.get_shape()))
        view = state.views[index]
        wanted = (dtypes.BY_NUMBER[state.numbers[index]].name, view.shape)
        if came != wanted:
            problems.append(
                f"'{key}' is {came[0]}{shape_text(came[1])}, "
                f"{wanted[0]}{shape_text(wanted[1])} was expected."
            )
    return problems


def _other_optimizers(metadata: Mapping[str, str], state: StateStore) -> list[str]:
    """Return a sentence if the metadata of a file says that it is of other optimizers."""
    theirs, ours = _stated_optimizers(metadata), state.optimizers
    if not theirs or theirs == ours:
        return []
    wanted = f"trains with {listed(ours, _SHOWN, ', ')}" if ours else "has no optimizer"
    return [f"It is of the optimizer {listed(theirs, _SHOWN, ', ')}, and the program {wanted}."]


def _stated_optimizers(metadata: Mapping[str, str]) -> list[str]:
    """Return the optimizers that a file says it is of; none if it says nothing that can be read."""
    try:
        found = json.loads(metadata.get("optimizers", "[]"))
    except (ValueError, RecursionError):
        return []
    known = isinstance(found, list) and all(isinstance(each, str) for each in found)
    return found if known else []


def _contents(
    name: str, file: _File, found: Mapping[str, int | None], metadata: Mapping[str, str]
) -> dict[int, Array]:
    """Return the tensors by symbol.

    Raises `RunError` if two names of one tensor differ, and for what is not as it was written.
    """
    read = {key: file.get_tensor(key) for key in found}

    def refuse(error: Exception) -> RunError:
        return RunError(f"{name} is damaged: its checksums cannot be read ({why(error)}).")

    with reading(refuse):
        problems = [*damaged(metadata, read)]
    if problems:
        raise RunError(
            f"{name} is damaged, or was changed by hand; then leave '{CHECKSUMS}' out of its "
            f"metadata. {listed(problems, _SHOWN, ' ')}"
        )
    contents: dict[int, Array] = {}
    first: dict[int, str] = {}
    for key, index in found.items():
        if index is None:
            continue
        array = read[key]
        known = contents.setdefault(index, array)
        other = first.setdefault(index, key)
        if known is not array and known.tobytes() != array.tobytes():
            raise RunError(
                f"{name}: '{other}' and '{key}' are one tensor in the program, but differ here."
            )
    return contents


def _require_numbers(name: str, contents: Mapping[int, Array], state: StateStore) -> None:
    """Raise `RunError` for hyperparameters that are no numbers, and for counts below zero.

    Parameters that are no numbers are told by the first loss; nothing would tell of these.
    """
    problems = []
    for key, index in state.entries().items():
        value, kind = contents.get(index), state.kinds[index]
        if value is None or kind not in _NUMBERS:
            continue
        if (
            value.dtype.kind == "f"
            and kind is pef.SymbolKind.ARGIN
            and not np.isfinite(value).all()
        ):
            problems.append(f"'{key}' is {value}; a finite number was expected.")
        elif value.dtype.kind == "i" and (value < 0).any():
            problems.append(f"'{key}' is {value}; a count was expected.")
    if problems:
        raise RunError(f"{name} is damaged. {listed(problems, _SHOWN, ' ')}")


def _position(name: str, metadata: Mapping[str, str]) -> Position:
    """Return what the metadata of a whole checkpoint says. Raises `RunError` for damage."""
    version = metadata.get("sambaflow_format")
    if version != _FORMAT:
        raise RunError(
            f"{name} holds optimizer state in format {version}; format {_FORMAT} was expected."
        )

    def refuse(error: Exception) -> RunError:
        return RunError(f"{name} does not say how far training has come: {why(error)}.")

    with reading(refuse):
        clock = Clock(int(metadata["steps"]), int(metadata["forwards"]))
        cursor = Cursor(**json.loads(metadata["cursor"]))
    counts = (clock.steps, clock.forwards, cursor.step, cursor.epoch, cursor.batch)
    if not all(map(COUNT.fits, counts)):
        raise refuse(ValueError(f"{cursor} and {clock} are no counts"))
    return Position(clock, cursor, metadata.get("program", ""))
