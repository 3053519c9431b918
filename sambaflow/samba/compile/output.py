"""Where a PEF is written: refused at once where it could not be written in the end."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pef.arguments import shown
from sambaflow.samba.errors import SambaError

_NO_NAMES = ("", ".", "..")


def output_path(config: Mapping[str, object], name: str) -> Path:
    """Return where the PEF belongs: `<output folder>/<name>/<name>.pef`, or where `pef` says.

    `pef` counts for the command `compile`: the path that `run -p` is given later. `pef_name` of
    `config` wins over `name`, which may be anything: slashes become underscores. Nothing is made
    yet. Raises `SambaError` for a name that is no file's, and for a folder that cannot be made or
    written to.
    """
    given = config.get("pef") if config.get("command") == "compile" else None
    if given:
        path = Path(str(given))
        _require_writable(path)
        return path
    chosen = config.get("pef_name") or name.replace("/", "_")
    stem = str(chosen).removesuffix(".pef")
    if stem in _NO_NAMES or Path(stem).name != stem or "\0" in stem or _is_long(stem):
        raise SambaError(
            f"the name of the PEF is {shown(stem)}, which is no name of a file; give a folder with "
            f"--output-folder, and a plain name with --pef-name"
        )
    path = Path(str(config.get("output_folder") or "out")) / stem / f"{stem}.pef"
    _require_writable(path)
    return path


def _is_long(stem: str) -> bool:
    """Return whether a file system has no names as long as those that begin with `stem`."""
    return len(os.fsencode(f"{stem}.samba.log")) > 255


def _require_writable(path: Path) -> None:
    """Raise `SambaError` unless the folders of `path` can be made, and `path` in them."""
    if path.is_dir():
        raise SambaError(f"{path} is a folder; give another --pef, --pef-name or --output-folder")
    parents = path.absolute().parents
    folder = next(parent for parent in parents if parent.exists() or parent.is_symlink())
    if not folder.is_dir():
        raise SambaError(f"{folder} is no folder, so {path} cannot be made; see --output-folder")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise SambaError(
            f"{path} cannot be made in {folder}: {error.strerror}; see --output-folder"
        ) from error
