"""Checkpoints that are spread over several files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from torch import nn

from pef.foreign import reading, why
from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.errors import SambaError
from sambaflow.samba.tensors.tensor import SambaTensor

__all__ = ["Unmatched", "load_sharded_checkpoint"]

_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")


class Unmatched(NamedTuple):
    """Names that only the model has, and names that only the checkpoint has."""

    missing_keys: list[str]
    unexpected_keys: list[str]


@checked()
def load_sharded_checkpoint(
    model: nn.Module, folder: str | os.PathLike[str], strict: bool = True
) -> Unmatched:
    """Load the files in `folder` that an index file lists into `model`, one file at a time.

    The index is `model.safetensors.index.json`, else `pytorch_model.bin.index.json`: a `weight_map`
    of names to files of safetensors, or of torch, of which nothing but tensors is unpickled.
    Values take the types of the model's tensors; SambaTensors without data get it. Returns the
    names that do not match.

    Raises SambaError if there is no index, a file is missing or has not what the index says, or
    shapes differ, and, with `strict`, if names do not match; all problems are listed.
    """
    where = Path(folder)
    files = _files(where)
    targets = _targets(model)
    given = {name for names in files.values() for name in names}
    unmatched = Unmatched(
        sorted(set(targets) - given - _tied(targets, given)), sorted(given - set(targets))
    )
    problems = [f"{name} is in the model alone" for name in unmatched.missing_keys if strict]
    problems += [
        f"{name} is in the checkpoint alone" for name in unmatched.unexpected_keys if strict
    ]
    problems += [f"{file} is not there" for file in files if not (where / file).is_file()]
    if problems:
        raise SambaError(f"{where} does not fit the model: {'; '.join(problems)}")
    for file, names in files.items():
        problems += _take(where / file, names, targets)
    if problems:
        raise SambaError(f"{where} does not fit the model: {'; '.join(problems)}")
    return unmatched


def _files(folder: Path) -> dict[str, list[str]]:
    """Return the names in each file, as the index has them."""
    index = next((folder / name for name in _INDEXES if (folder / name).is_file()), None)
    if index is None:
        raise SambaError(f"{folder} has no index file, expected {' or '.join(_INDEXES)}")
    with _guarded(f"{index} is no index with a mapping 'weight_map'"):
        found = json.loads(index.read_text("utf-8"))["weight_map"]
        pairs = sorted((str(file), str(name)) for name, file in found.items())
    outside = sorted({file for file, _ in pairs if Path(file).name != file})
    if outside:
        raise SambaError(f"{index} names files outside its folder: {', '.join(outside)}")
    files: dict[str, list[str]] = {}
    for file, name in pairs:
        files.setdefault(file, []).append(name)
    return files


def _targets(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the tensors in the state dict of `model`, tied ones under each of their names."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    everything = {**parameters, **dict(model.named_buffers(remove_duplicate=False))}
    return {name: everything[name] for name in model.state_dict() if name in everything}


def _tied(targets: Mapping[str, torch.Tensor], given: set[str]) -> set[str]:
    """Return the names of tensors that are given under another name."""
    known = {id(tensor) for name, tensor in targets.items() if name in given}
    return {name for name, tensor in targets.items() if id(tensor) in known}


def _take(path: Path, names: list[str], targets: Mapping[str, torch.Tensor]) -> Iterator[str]:
    """Copy the tensors of one file into `targets`; gives what does not fit, in words."""
    shard = _read(path)
    for name in names:
        if name not in shard:
            yield f"{path.name} lacks {name}, which the index says it has"
        elif name in targets:
            value, target = shard[name], targets[name]
            if value.shape != target.shape:
                yield f"{name} is {list(value.shape)}, expected {list(target.shape)}"
            else:
                _assign(name, target, value)


def _assign(name: str, target: torch.Tensor, value: torch.Tensor) -> None:
    if not target.is_meta:
        with torch.no_grad():
            target.copy_(value)
    elif isinstance(target, SambaTensor):
        target.data = value.to(target.dtype)
    else:
        raise SambaError(f"{name} has no memory to load into; convert the model to SambaFlow first")


def _read(path: Path) -> dict[str, torch.Tensor]:
    if path.suffix == ".safetensors":
        with _guarded(f"{path} is no file of safetensors, or a damaged one"):
            return load_file(path)
    with _guarded(f"{path} is no file of torch with tensors alone, or a damaged one"):
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(loaded, dict):
        raise SambaError(f"{path} holds a {type(loaded).__name__}, expected tensors by name")
    return loaded


def _guarded(fault: str) -> AbstractContextManager[None]:
    return reading(lambda error: SambaError(f"{fault}: {why(error)}"))
