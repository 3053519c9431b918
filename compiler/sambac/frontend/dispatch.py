"""Which frontend reads what: PyTorch is loaded for its own models alone."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import onnx
import onnx_ir as ir

from pef.wording import listed
from sambac.errors import CompileError
from sambac.models import Inputs, Model, Shapes
from sambac.options import CompileOptions

from .onnx import load_onnx
from .source import Source


def load(
    model: Model,
    options: CompileOptions,
    inputs: Inputs | None = None,
    dynamic_shapes: Shapes | None = None,
) -> Source:
    """Return `model` ready for the passes.

    `model` is the path of an .onnx file or a model object of `onnx` or `onnx_ir`; or, with
    PyTorch, a module, an exported program, the path of a .pt2 file, or `file.py:callable`, whose
    callable returns a module and its example inputs.
    `inputs` are a module's example inputs, which fix types and shapes: a tuple of arguments, a
    mapping of keyword arguments, or a tuple whose last element is such a mapping.
    `dynamic_shapes` says which of its sizes stay open, as torch.export.export takes it.
    Raises `CompileError` for whatever cannot be read or used.
    """
    if is_torch(model):
        return _load_torch(model, options, inputs, dynamic_shapes)
    if isinstance(model, type):
        raise CompileError(
            f"{model.__name__} is a class, no model; call it, and compile what it makes: "
            f"{model.__name__}(...)"
        )
    if dynamic_shapes is not None:
        raise CompileError(
            "dynamic_shapes belong to a torch.nn.Module; an ONNX model declares which of its sizes "
            "are open"
        )
    if inputs is not None:
        raise CompileError(
            "example inputs belong to a torch.nn.Module; an ONNX model declares its inputs, and "
            "the option `inputs` fixes their shapes"
        )
    if not isinstance(model, (str, os.PathLike, ir.Model, onnx.ModelProto)):
        raise CompileError(
            f"a {type(model).__name__} is no model; give the path of an .onnx file, an ONNX model "
            "object, or a torch.nn.Module with its example inputs"
        )
    return load_onnx(model, options)


def is_torch(model: Model) -> bool:
    """Tell whether only PyTorch can read `model`; an object of its does not exist without it."""
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        return path.suffix == ".pt2" or (".py:" in str(path) and path.suffix != ".onnx")
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, (torch.nn.Module, torch.export.ExportedProgram))


def _load_torch(
    model: Model, options: CompileOptions, inputs: Inputs | None, dynamic_shapes: Shapes | None
) -> Source:
    missing = [name for name in ("torch", "onnxscript") if find_spec(name) is None]
    if missing:
        raise CompileError(
            f"{model}: PyTorch models need {listed(missing)}; pip install 'sambaflow[torch]'"
        )
    from .torch import load_torch

    return load_torch(model, options, inputs, dynamic_shapes)
