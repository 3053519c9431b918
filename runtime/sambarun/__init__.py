"""Run PEF programs with onnxruntime's kernels, without the compiler and without a framework.

>>> import sambarun
>>> executable = sambarun.load("model.pef")
>>> outputs = executable.run({"x": x})
"""

from __future__ import annotations

from .errors import RunError
from .executor import Executable
from .loader import load
from .profiler import Profile, Span

__all__ = ["Executable", "Profile", "RunError", "Span", "load"]
