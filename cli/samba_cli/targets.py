"""Where results go: refused at once where they could not be written in the end."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from .shell import Wrong

File = str | os.PathLike[str]

# What a file is by its ending: of another kind than these, none is called so.
_KINDS = {
    ".csv": "a table",
    ".html": "a page",
    ".json": "JSON",
    ".npy": "an array",
    ".npz": "a file of arrays",
    ".onnx": "an ONNX model",
    ".pef": "a PEF",
    ".pt": "a PyTorch file",
    ".pt2": "an exported program",
    ".pth": "a PyTorch file",
    ".py": "Python source",
    ".safetensors": "a file of weights",
    ".svg": "a picture",
    ".toml": "a file of settings",
    ".yaml": "a file of rules",
    ".yml": "a file of rules",
}


def check_targets(outputs: Iterable[File | None], sources: Iterable[File | None]) -> None:
    """Refuse early what would fail after minutes or destroy something; None is no file."""
    inputs = [source for source in sources if source is not None]
    seen: list[File] = []
    for output in outputs:
        if output is None:
            continue
        for source in inputs:
            check_target(output, source)
        if any(_same(output, other) for other in seen):
            raise Wrong(f"{output} is named twice; give each output a file of its own.")
        seen.append(output)


def check_kind(output: File | None, ending: str) -> None:
    """Refuse a name whose ending is that of another kind of file than those that end in `ending`.

    Any ending that says nothing will do; None is no file.
    """
    suffix = Path(output or "").suffix.lower()
    if suffix in _KINDS and suffix != ending:
        raise Wrong(
            f"{output} would be {_KINDS[suffix]} by its name, and {_KINDS[ending]} is what is "
            f"written; give a name that ends with {ending}."
        )


def check_target(output: File, source: File) -> None:
    """Refuse an output that cannot be written, or is the `source`."""
    target = Path(output)
    if os.fspath(output) == "-":
        raise Wrong("- is no file name here: results go to files; a file called so is ./-.")
    if target.is_dir():
        raise Wrong(f"{target} is a folder; give a file name for the output.")
    if target.exists() and not target.is_file():
        raise Wrong(f"{target} is a device or pipe; give a file name for the output.")
    if _same(target, source):
        raise Wrong(f"{target} is the input; writing there would destroy it.")
    folder = target.parent
    if not folder.is_dir():
        raise Wrong(f"the folder {folder} does not exist, so {target} cannot be made.")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise Wrong(f"cannot write into {folder}: {error.strerror}.") from error


def _same(one: File, other: File) -> bool:
    """Tell whether two names lead to one file, existing or not."""
    if os.path.exists(one) and os.path.exists(other):
        return os.path.samefile(one, other)
    return os.path.realpath(one) == os.path.realpath(other)
