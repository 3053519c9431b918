"""Tables of PyTorch's exporters that they build anew for every program, built less often.

Two thirds of the time that a small model takes to compile would go into them. What is built here
is what PyTorch builds: the same translations in the same order, and the same operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial

import torch
from onnxscript import TracedOnnxFunction
from torch._C import DispatchKey
from torch._C._functorch import TransformType
from torch._export import utils
from torch._ops import OperatorBase
from torch.onnx._internal.exporter._registration import ONNXRegistry
from torch.utils._python_dispatch import TorchDispatchMode

from .guards import replaced


@contextmanager
def kept_tables() -> Iterator[None]:
    """Let exports find translations and composite operators without looking everywhere again."""
    with ExitStack() as stack:
        stack.enter_context(replaced(ONNXRegistry, "from_torchlib", staticmethod(_registry)))
        # Looks for operators that C++ registered, once for each namespace of operators.
        found = cache(utils._materialize_cpp_cia_ops)
        stack.enter_context(replaced(utils, "_materialize_cpp_cia_ops", found))
        stack.enter_context(replaced(OperatorBase, "py_impl", _py_impl))
        yield


def _registry(opset_version: int) -> ONNXRegistry:
    """Return a registry of translations, which the caller may add to."""
    operators = len(torch._C._dispatch_get_all_op_names())
    kept = _translations(opset_version, operators)
    result = ONNXRegistry()
    result._opset_version = kept.opset_version
    result.functions = {target: list(metas) for target, metas in kept.functions.items()}
    return result


_from_torchlib = ONNXRegistry.from_torchlib


@cache
def _translations(opset_version: int, operators: int) -> ONNXRegistry:
    """Return the registry; `operators` is how many there are, as libraries bring some.

    It asks every translation for its domain, which would parse its source.
    """
    domain = property(lambda function: function.opset)
    with replaced(TracedOnnxFunction, "function_ir", domain):
        return _from_torchlib(opset_version=opset_version)


_slow_py_impl = OperatorBase.py_impl

Key = DispatchKey | TransformType | type[TorchDispatchMode] | type[torch.Tensor]
Kernel = Callable[..., object]


def _py_impl(operator: OperatorBase, key: Key) -> Callable[[Kernel], Kernel]:
    """Do as `OperatorBase.py_impl`, which makes types for its annotations in every call.

    It is called thousands of times, and comparing keys takes longer than all the rest.
    """
    if isinstance(key, DispatchKey) and key is not DispatchKey.Python:
        return partial(_register, operator, key)
    return _slow_py_impl(operator, key)


def _register(operator: OperatorBase, key: DispatchKey, kernel: Kernel) -> Kernel:
    if operator.py_kernels.setdefault(key, kernel) is not kernel:
        raise RuntimeError(f"{operator} has a kernel for {key} already")
    operator._dispatch_cache.clear()
    return kernel
