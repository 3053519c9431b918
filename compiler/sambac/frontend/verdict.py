"""Whose fault it is that a stage stumbled: onnxruntime says whether the model is a sound one.

Frontends and passes refuse what they know to be wrong, with better words. What none of them
thought of ends in an error of Python's somewhere; if onnxruntime refuses that model too, it is
the model that has to change.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import onnx_ir as ir
from onnxruntime.capi import onnxruntime_pybind11_state as state

from pef.foreign import why
from sambac.errors import CompileError
from sambac.graph.protos import skeleton
from sambac.kernels.probe import RefusedError, open_session, run_on_zeros
from sambac.models import Model
from sambac.options import CompileOptions

from .dispatch import is_torch, load

Given = tuple[Model, CompileOptions]


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
    """Return why `model`, read once more, is no sound ONNX model; None if onnxruntime takes it."""
    if is_torch(model):
        return None
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
