"""What an application stores in its PEF, and reads back."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from torch import nn

from sambaflow.samba.checked import checked
from sambaflow.samba.env import use_mock_samba_runtime
from sambaflow.samba.kinds import dict_of, instance
from sambaflow.samba.names import model_name

__all__ = ["PefInfoStruct", "get_pef_info", "get_pefmeta", "get_pefmeta_dict", "plain"]

APPLICATION = "application"
"""Where the producer's options hold what the application stored."""

# What says where and when something was compiled, not what: equal models give equal files.
_NOT_STORED = frozenset({"command", "pef", "pef_name", "output_folder", "log_level", "debug"})


@dataclass(frozen=True)
class PefInfoStruct:
    """What is asked of a PEF: `mock_value` is the answer where no PEF is looked at."""

    mock_value: object = None


_FIELDS = dict_of(instance(PefInfoStruct, "a PefInfoStruct"), "a dict of PefInfoStructs by name")


@checked()
def get_pefmeta(args: Namespace, model: nn.Module) -> dict[str, object]:
    """Return what is worth storing in the PEF of `model`: its name and the options in `args`.

    Options that are absolute paths, and those that name the file itself, are left out.
    """
    return get_pefmeta_dict(vars(args), model)


@checked()
def get_pefmeta_dict(options: Mapping[str, object], model: nn.Module) -> dict[str, object]:
    """Return the same as `get_pefmeta`, for options in a dict."""
    kept = {
        name: plain(value)
        for name, value in options.items()
        if name not in _NOT_STORED and not (isinstance(value, str) and os.path.isabs(value))
    }
    return kept | {"model": model_name(model), "class": type(model).__name__}


@checked(fields=_FIELDS)
def get_pef_info(
    pef: str | os.PathLike[str], fields: Mapping[str, PefInfoStruct]
) -> dict[str, object]:
    """Return what the application stored in the file `pef` under the names of `fields`.

    With the mock runtime (`use_mock_samba_runtime`) the file is not opened, and the values are the
    mock values. Raises ValueError that lists the fields that are not stored, `pef.PefError` if the
    file is no PEF.
    """
    if use_mock_samba_runtime():
        return {name: field.mock_value for name, field in fields.items()}
    from pef import open as open_pef

    with open_pef(pef) as file:
        options = json.loads(file.program.producer.options or "{}")
    stored = options.get(APPLICATION, {})
    absent = [name for name in fields if name not in stored]
    if absent:
        known = ", ".join(sorted(stored)) or "nothing"
        raise ValueError(f"{os.fspath(pef)} does not store {', '.join(absent)}; it stores {known}")
    return {name: stored[name] for name in fields}


def plain(value: object) -> object:
    """Return `value` as JSON can hold it: lists for other sequences and sets, text for the rest."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, set | frozenset):
        return sorted(str(part) for part in value)
    if isinstance(value, Iterable):
        return [plain(part) for part in value]
    return _text(value)


def _text(value: object) -> str:
    """Return a text for `value` that is the same in every process."""
    text = str(value)
    return type(value).__qualname__ if " at 0x" in text else text
