"""What an application stores in its PEF, and reads back."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from pef import open as open_pef
from pef.foreign import producer_options
from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.arguments.kinds import dict_of, instance
from sambaflow.samba.compile.application import APPLICATION, plain
from sambaflow.samba.env import use_mock_samba_runtime
from sambaflow.samba.names import model_name

__all__ = ["PefInfoStruct", "get_pef_info", "get_pefmeta", "get_pefmeta_dict", "plain"]

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

    with open_pef(pef) as file:
        options = producer_options(file.program.producer.options)
    stored = options.get(APPLICATION, {})
    absent = [name for name in fields if name not in stored]
    if absent:
        known = ", ".join(sorted(stored)) or "nothing"
        raise ValueError(f"{os.fspath(pef)} does not store {', '.join(absent)}; it stores {known}")
    return {name: stored[name] for name in fields}
