"""Pipelines of transformers whose model writes on the device."""

from __future__ import annotations

import importlib
from functools import cache, partial
from typing import Any

from pybuda.errors import as_own, counted
from pybuda.module import PyTorchModule
from sambahost.writing import write_with


def pipeline(pipeline_type: str, *args: Any, pybuda_max_length: int = 256, **kwargs: Any) -> Any:
    """Return what `transformers.pipeline` returns, with a model that writes on the device.

    Each forward computes a whole text, filled up to a multiple of `pybuda_max_length` places.
    Raises `PyBudaError` for a model that does not write.
    """
    length = counted("pybuda_max_length", pybuda_max_length, 1)
    transformers = importlib.import_module("transformers")
    made = transformers.pipeline(pipeline_type, *args, **kwargs)
    placed = cache(partial(PyTorchModule, type(made.model).__name__))
    output = transformers.modeling_outputs.Seq2SeqLMOutput
    with as_own(f"a pipeline of {pipeline_type}: "):
        write_with(made.model, lambda m, given: placed(m).run(*given)[0].value(), length, output)
    return made
