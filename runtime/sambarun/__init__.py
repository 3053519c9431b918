"""Run PEF programs with onnxruntime's kernels, without the compiler and without a framework.

>>> import sambarun
>>> executable = sambarun.load("model.pef")
>>> outputs = executable.run({"x": x})

Programs compiled for training hold parameters and optimizer state, and train:

>>> losses = executable.step({"x": x, "y": y}, {"lr": 1e-3})
>>> executable.save("checkpoint.safetensors")
"""

from __future__ import annotations

from .data import Batches, Cursor
from .errors import OtherProgramWarning, RunError
from .executor import Executable
from .footprint import MemoryUse, RegionUse
from .host_steps import Handle, Reducer
from .loader import load
from .profiler import Profile, Span
from .selection import Selection

__all__ = [
    "Batches",
    "Cursor",
    "Executable",
    "Handle",
    "MemoryUse",
    "OtherProgramWarning",
    "Profile",
    "Reducer",
    "RegionUse",
    "RunError",
    "Selection",
    "Span",
    "load",
]
