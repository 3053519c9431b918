"""The compiler: an ONNX model becomes a `pef.Program`."""

from .errors import CompileError, InternalError
from .options import CompileOptions, InputSpec

__all__ = ["CompileError", "CompileOptions", "InputSpec", "InternalError"]
