"""What this host can do that not every host can, by the names that programs require it by."""

from __future__ import annotations

import numpy as np

from sambarun.errors import RunError

from .opening import Tuning, create_session
from .probes import probe

_BLOCKED_DOMAIN = "com.microsoft.nchwc"
_PROBE_SHAPE = (1, 4, 1, 1)


def host_features(tuning: Tuning) -> frozenset[str]:
    """Return the features of this host, as far as the provider's kernels have them.

    `nchwc16` and `nchwc8`: onnxruntime's convolutions in blocks of so many channels. An operator
    that puts a small image into blocks tells: it rounds the channels up to a whole block.
    """
    if not tuning.provider.is_processor:
        return frozenset()  # its kernels are not those that are asked about
    try:
        session = create_session(probe("ReorderInput", _BLOCKED_DOMAIN, 1), "", tuning)
    except RunError:
        return frozenset()  # a build without these operators
    (blocked,) = session.run(None, {"x": np.zeros(_PROBE_SHAPE, np.float32)})
    return frozenset({f"nchwc{blocked.shape[1]}"})
