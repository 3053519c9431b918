"""Run PEF programs with onnxruntime's kernels, without the compiler and without a framework.

>>> import sambarun
>>> executable = sambarun.load("model.pef")
>>> outputs = executable.run({"x": x})

Programs compiled for training hold parameters and optimizer state, and train:

>>> losses = executable.step({"x": x, "y": y}, {"lr": 1e-3})
>>> executable.save("checkpoint.safetensors")
"""

from __future__ import annotations

import sys

from pef.arguments import tell

from .device.footprint import MemoryUse, RegionUse
from .errors import OtherProgramWarning, RunError
from .execution.host_steps import Handle, Reducer
from .execution.profiler import Profile
from .execution.spans import OperatorSpan, Span
from .executor import Executable
from .loader import load
from .selection import Selection
from .sessions.provider import Provider
from .training.data import Batches, Cursor

__all__ = [
    "Batches",
    "Cursor",
    "Executable",
    "Handle",
    "MemoryUse",
    "OperatorSpan",
    "OtherProgramWarning",
    "Profile",
    "Provider",
    "Reducer",
    "RegionUse",
    "RunError",
    "Selection",
    "Span",
    "load",
]

tell(sys.modules[__name__], __name__)
