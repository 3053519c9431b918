"""Which frontend reads what, and whose fault it is if a stage stumbles over what was read.

PyTorch is loaded for its own models alone.

Frontends and passes refuse what they know to be wrong, with better words. What none of them
thought of ends in an error of Python's somewhere; if onnxruntime refuses that model too, or PyTorch
a program in a file, it is the model that has to change.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import onnx
import onnx_ir as ir
from onnxruntime.capi import onnxruntime_pybind11_state as state

from pef.arguments import PATH, shown
from pef.foreign import why
from pef.wording import listed
from sambac.errors import CompileError, require_arguments
from sambac.graph.protos import skeleton
from sambac.kernels.probe import RefusedError, open_session, run_on_zeros
from sambac.models import Inputs, Model, Shapes
from sambac.options import CompileOptions

from .onnx import load_onnx
from .source import Source

Given = tuple[Model, CompileOptions]


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
    if isinstance(model, (str, os.PathLike)):
        require_arguments(model=(model, PATH))
    if is_torch(model):
        return _load_torch(model, options, inputs, dynamic_shapes)
    if isinstance(model, type):
        raise CompileError(
            f"{model.__name__} is a class, not a model; call it, and compile the result: "
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
        several = "; compile_graphs takes several models" if isinstance(model, Sequence) else ""
        raise CompileError(
            f"{shown(model)} is no model; give the path of an .onnx file, an ONNX model "
            f"object, or a torch.nn.Module with its example inputs{several}"
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
    # Imported here: models of ONNX are compiled without torch, which may be missing.
    from .torch import load_torch

    return load_torch(model, options, inputs, dynamic_shapes)


@contextmanager
def judging(*given: Given) -> Iterator[None]:
    """Raise `CompileError` instead of whatever the block raises, if a model of `given` is unsound.

    Errors that speak to the user already pass, and so do all others if every model is sound:
    they are faults of the compiler.
    """
    try:
        yield
    except (CompileError, OSError, MemoryError):
        raise
    except Exception as error:  # of any stage: the reason is sought in the models
        for model, options in given:
            reason = _refusal(model, options)
            if reason is not None:
                raise CompileError(reason) from error
        raise


def _refusal(model: Model, options: CompileOptions) -> str | None:
    """Return why `model`, read once more, is unsound; None if onnxruntime or PyTorch takes it."""
    if is_torch(model):
        if not isinstance(model, (str, os.PathLike)) or Path(model).suffix != ".pt2":
            return None  # code, which may be asked for anything
        from .torch import unsound  # loads torch

        return unsound(str(model))
    try:
        source = load(model, options)
        message = skeleton(source.model)
    except Exception:  # the fault is in reading it, so that nobody can be asked
        return None
    for function in source.model.functions.values():
        message.functions.append(ir.serde.serialize_function(function))
    try:
        run_on_zeros(open_session(message.SerializeToString()))
    except RefusedError as refusal:
        if isinstance(refusal.__cause__, state.NotImplemented):
            return None  # a sound model may have operators without a kernel
        return (
            f"{source.name} is not a sound model, onnxruntime refuses it as well ({why(refusal)}); "
            "correct it, or export it again"
        )
    return None
