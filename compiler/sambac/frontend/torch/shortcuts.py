"""Ways round what PyTorch's exporters do at length for nothing; here they take them.

Tables that they build anew for every program are built less often: two thirds of the time that a
small model takes to compile would go into them. What is built here is what PyTorch builds: the same
translations in the same order, and the same operators. Rules of the optimizer are tried where they
begin.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from traceback import FrameSummary, StackSummary
from types import FrameType
from typing import Any

import onnx_ir as ir
import torch
from onnxscript import TracedOnnxFunction
from onnxscript.rewriter import RewriteRule
from torch import fx
from torch._C import DispatchKey
from torch._C._functorch import TransformType
from torch._export import utils
from torch._higher_order_ops.utils import autograd_not_implemented
from torch._ops import OperatorBase, OpOverload
from torch._subclasses.fake_impls import op_implementations_dict
from torch.export import exported_program
from torch.fx import proxy
from torch.onnx._internal.exporter import _schemas
from torch.onnx._internal.exporter._registration import ONNXRegistry
from torch.onnx._internal.fx.passes.type_promotion import (
    TypePromotionTable,
    _TypePromotionInterpreter,
    get_type_promotion_rule,
)
from torch.onnx._internal.fx.type_utils import from_scalar_type_to_torch_dtype
from torch.utils._python_dispatch import TorchDispatchMode

from sambac.frontend.torch.patching import replaced


def has_known_type(value: object) -> bool:
    """Tell whether `value` is a tensor, or several, whose sizes are all numbers."""
    if isinstance(value, (tuple, list)):
        return all(map(has_known_type, value))
    if isinstance(value, torch.Tensor):
        return all(isinstance(size, int) for size in value.shape)
    return False


@contextmanager
def promoted_where_types_differ() -> Iterator[None]:
    """Let what computes in the types of its operands give what it gave when it was recorded.

    The exporter runs every operator once more to promote the operands of some.
    """
    run = _TypePromotionInterpreter.run_node

    def run_node(interpreter: _TypePromotionInterpreter, node: fx.Node) -> object:
        known = node.op == "call_function" and has_known_type(node.meta.get("val"))
        if known and not _promotes(node):
            return node.meta["val"]
        result: object = run(interpreter, node)
        return result

    with replaced(_TypePromotionInterpreter, "run_node", run_node):
        yield


@cache
def _promotions() -> TypePromotionTable:
    return TypePromotionTable()


def _promotes(node: fx.Node) -> bool:
    """Tell whether the exporter would promote an operand of `node`, or not all are known."""
    rule = get_type_promotion_rule(node, _promotions())
    if rule is None:
        return False
    if not all("val" in one.meta for one in node.all_input_nodes):
        return True
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda one: one.meta["val"])
    wanted = rule.preview_type_promotion(args, kwargs)
    pairs = [(value, wanted.args_dtypes.get(at)) for at, value in enumerate(args)]
    pairs += [(value, wanted.kwargs_dtypes.get(name)) for name, value in kwargs.items()]
    return any(dtype is not None and _differs(value, dtype) for value, dtype in pairs)


def _differs(value: object, dtype: torch.dtype) -> bool:
    if isinstance(value, (tuple, list)):
        return any(_differs(one, dtype) for one in value)
    if isinstance(value, torch.Tensor):
        return value.dtype is not dtype
    return value is not None and from_scalar_type_to_torch_dtype(type(value)) is not dtype


@contextmanager
def rules_where_they_begin() -> Iterator[None]:
    """Let rules of the optimizer be tried on operators of the type alone that they begin with.

    It tries every rule on every operator, and makes an explanation for each that does not match.
    """
    rewrite = RewriteRule.try_rewrite

    def tried(
        rule: RewriteRule, model: ir.Model, graph: ir.Graph, node: ir.Node, **others: Any
    ) -> object:
        begins = rule._target_pattern.output_nodes[0].op
        return rewrite(rule, model, graph, node, **others) if begins.matches(node.op_type) else None

    with replaced(RewriteRule, "try_rewrite", tried):
        yield


@contextmanager
def kept_tables() -> Iterator[None]:
    """Let exports find translations and composite operators without looking everywhere again."""
    with ExitStack() as stack:
        stack.enter_context(replaced(ONNXRegistry, "from_torchlib", staticmethod(_registry)))
        # Looks for operators that C++ registered, once for each namespace of operators.
        found = cache(utils._materialize_cpp_cia_ops)
        stack.enter_context(replaced(utils, "_materialize_cpp_cia_ops", found))
        # The kernel of an operator without a gradient, which each of its keys would get one of:
        # thousands of functions, for all of which Python soon looks for garbage.
        kernel = cache(autograd_not_implemented)
        stack.enter_context(replaced(exported_program, autograd_not_implemented.__name__, kernel))
        stack.enter_context(replaced(OperatorBase, "py_impl", _py_impl))
        stack.enter_context(replaced(exported_program, _override.__name__, _overridden))
        stack.enter_context(replaced(_schemas, _read_signature.__name__, _signature))
        stack.enter_context(replaced(proxy, "CapturedTraceback", _UsersFrames))
        yield


class _UsersFrames:
    """The calls that led to an operator, of which recordings keep those of `forward` alone.

    PyTorch describes all of them for every operator first, from the beginning of the process on.
    """

    def __init__(self, frames: Sequence[FrameSummary]) -> None:
        self._frames = frames

    @classmethod
    def extract(cls) -> _UsersFrames:
        """Return the calls that are going on, the outermost first."""
        found: list[FrameSummary] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            if _is_kept(code.co_filename, code.co_name):
                found.append(FrameSummary(code.co_filename, frame.f_lineno, code.co_name))
            frame = frame.f_back
        return cls(found[::-1])

    def summary(self) -> StackSummary:
        """Return them as PyTorch does."""
        return StackSummary.from_list(self._frames)


def _is_kept(file: str, function: str) -> bool:
    return (
        function == "forward"
        or file.endswith("torch/__init__.py")
        or (file, function) in proxy._STACK_TRACE_ANCHORS
    )


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


_read_signature = _schemas.op_signature_from_function


def _signature(translation: Callable[..., object], *words: str | None, **others: Any) -> object:
    """Do as PyTorch does, which reads the annotations of every translation for every program."""
    found = _signature_or_error(translation, *words, **others)
    if isinstance(found, Exception):
        raise found.with_traceback(None)
    return found


@cache
def _signature_or_error(*words: Any, **others: Any) -> object:
    try:
        return _read_signature(*words, **others)
    except Exception as error:  # the caller passes over whatever it raises
        return error


Kernels = dict[Any, Kernel]
"""The kernels of an operator, by key."""

_override = exported_program._override_composite_implicit_decomp
_stay = utils._special_op_to_preserve_cia


@contextmanager
def _overridden(rules: dict[OpOverload, Callable[..., object]]) -> Iterator[None]:
    """Do as PyTorch does to composite operators while it decomposes by `rules`.

    It makes a dozen kernels for each of hundreds of operators that stay as they are, every time.
    """
    others = {op: rule for op, rule in rules.items() if rule is not _stay}
    staying = [op for op, rule in rules.items() if rule is _stay]
    before = [dict(op.py_kernels) for op in staying]
    kept = [_while_staying(op, *op.py_kernels.items()) for op in staying]
    with _override(others):
        try:
            for op, (kernels, fake) in zip(staying, kept, strict=True):
                _put(op, kernels)
                op_implementations_dict.setdefault(op, fake)
            yield
        finally:
            for op, kernels in zip(staying, before, strict=True):
                _put(op, kernels)
                op_implementations_dict.pop(op, None)


@cache
def _while_staying(op: OpOverload, *_before: tuple[Any, Kernel]) -> tuple[Kernels, Kernel]:
    """Return the kernels that `op` has while it stays as it is, and its rule for fake tensors.

    They follow from those that it has before.
    """
    with _override({op: _stay}):
        return dict(op.py_kernels), op_implementations_dict[op]


def _put(op: OpOverload, kernels: Kernels) -> None:
    op.py_kernels.clear()
    op.py_kernels.update(kernels)
    op._dispatch_cache.clear()
