"""What a Python program needs to drive the device, whichever API it uses."""

from __future__ import annotations

try:
    import torch  # noqa: F401  # whatever is here needs it
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "sambaflow.samba and pybuda need PyTorch, which is not installed; "
        "pip install 'sambaflow[torch]'",
        name="torch",
    ) from None
