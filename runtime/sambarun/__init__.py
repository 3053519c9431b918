"""Run PEF programs with onnxruntime's kernels, without the compiler and without a framework.

>>> import sambarun
>>> executable = sambarun.load("model.pef")
>>> outputs = executable.run({"x": x})
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import RunError
from .loader import load

if TYPE_CHECKING:
    from .executor import Executable
    from .profiler import Profile, Span

__all__ = ["Executable", "Profile", "RunError", "Span", "load"]


def __getattr__(name: str) -> object:
    """Import what needs onnxruntime when it is first asked for.

    `load` checks weights while onnxruntime is being loaded, which takes that `import sambarun`
    has not loaded it before.
    """
    if name == "Executable":
        from .executor import Executable

        return Executable
    if name in ("Profile", "Span"):
        from . import profiler

        return getattr(profiler, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
