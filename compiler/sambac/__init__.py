"""The compiler: an ONNX model or a PyTorch module becomes a `pef.Program`.

program = sambac.compile("model.onnx", sambac.CompileOptions(level="O1"))
program.save("model.pef")

training = sambac.CompileOptions(train=True, optimizers=(sambac.AdamW(lr=1e-3),))
program = sambac.compile(module, training, inputs=(x, y))
"""

import sys

from pef.arguments import tell

from .api import compile, compile_graphs, tune
from .errors import CompileError, InternalError
from .input_specs import InputSpec
from .models import GraphSource
from .number_rules import NumberRule
from .optimizers import LAMB, LARS, SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop
from .options import CompileOptions

__all__ = [
    "LAMB",
    "LARS",
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "CompileError",
    "CompileOptions",
    "GraphSource",
    "InputSpec",
    "InternalError",
    "NumberRule",
    "Optimizer",
    "RMSprop",
    "compile",
    "compile_graphs",
    "tune",
]

tell(sys.modules[__name__], __name__)
