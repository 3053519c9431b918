"""Libraries that bring execution providers to the installed onnxruntime: its plugin libraries."""

from __future__ import annotations

import functools
from pathlib import Path

import onnxruntime

from pef.wording import did_you_mean, listed
from sambarun.errors import RunError

from .ort_errors import ORT_ERRORS, message_of

_METADATA = "library_path"


def require_in_library(name: str, library: str) -> None:
    """Load the library at the path `library`, whose code runs then, for its provider `name`.

    Raises `RunError` where it cannot be loaded, offers no provider of that name, or none of the
    devices of this host is for it.
    """
    path = Path(library).resolve()
    if not path.is_file():
        raise RunError(f"There is no library '{library}'.")
    _register(path)
    offered = sorted(
        {
            device.ep_name
            for device in onnxruntime.get_ep_devices()
            if device.ep_metadata.get(_METADATA) == str(path)
        }
    )
    if not offered:
        raise RunError(
            f"The library {library} has execution providers for other devices than this host's."
        )
    if name not in offered:
        raise RunError(
            f"The library {library} has no execution provider '{name}'"
            f"{did_you_mean(name, offered)}; it has {listed(offered)}."
        )


@functools.cache
def _register(path: Path) -> None:
    """Have onnxruntime load a library: once, as its providers stay in the process."""
    try:
        onnxruntime.register_execution_provider_library(str(path), str(path))
    except ORT_ERRORS as error:
        raise RunError(
            f"{path} cannot be loaded as a library of execution providers: {message_of(error)}."
        ) from error
