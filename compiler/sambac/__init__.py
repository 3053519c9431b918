"""The compiler: an ONNX model becomes a `pef.Program`.

program = sambac.compile("model.onnx", sambac.CompileOptions(level="O1"))
program.save("model.pef")
"""

from .errors import CompileError, InternalError
from .options import CompileOptions, InputSpec
from .pipeline import compile

__all__ = ["CompileError", "CompileOptions", "InputSpec", "InternalError", "compile"]
