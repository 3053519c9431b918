"""What an exported program says and ONNX cannot is said in other operators of the program.

Operators whose operands have several types, of which ONNX has none.

    layer_norm(x, w, b)  ->  cast(layer_norm(cast(x), w, b))     x in bfloat16, w and b in float32
    clamp(x, 0, 0.5)     ->  clamp(x, 0.0, 0.5)
    1.5 - x              ->  1.5 - cast(x)                       x of whole numbers
    sum(x, dtype=float)  ->  sum(cast(x), dtype=float)           x in float16
    add(2.5, x, alpha=3) ->  add(full([], 2.5), x, alpha=3)

Under `torch.autocast` normalisations are such. PyTorch computes them in the wider type and rounds
the result once.

Operators along an axis of a number, which PyTorch takes for a tensor of one element.

    max(x, 0)  ->  reshape(max(reshape(x, [1]), 0), [])       x has no axes

In ONNX a number has no axis 0. The exporter translates most of these operators as if it had one.

Operators whose operand and whose result have no elements: the result is the operand.

    interpolate(x, [8, 8])  ->  reshape(x, [0, 3, 8, 8])       x [0, 3, 4, 4]

ONNX has no shape for some of them, and kernels refuse what has no elements.

Comparisons are in the types that PyTorch compares in. The exporter lets those of narrow types be of
float32 numbers, where 0.1 is neither a float16 nor a bfloat16, while PyTorch rounds a number to the
type of the tensor beside it first: `x == 0.1` holds for the one next to 0.1.

Numbers are cast to float64 as they are. The exporter makes a constant of a number in the type of
the operands beside it; a cast has none, and 0.1 became a float32 first.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import fx
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KINDS
from torch._prims_common import elementwise_dtypes
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import has_free_symbols
from torch.onnx._internal.exporter._building import OpRecorder
from torch.onnx._internal.fx.passes.type_promotion import (
    ElementwiseTypePromotionRule,
    TypePromotionSnapshot,
)

from sambac.frontend.torch.patching import replaced

from .doubles import SPELLED
from .writes import noted

_aten = torch.ops.aten
_DOUBLE = ir.DataType.DOUBLE
_NORMALIZATIONS = frozenset(
    {
        _aten.group_norm.default,
        _aten.instance_norm.default,
        _aten.layer_norm.default,
        _aten.rms_norm.default,
    }
)

_SUMS = frozenset({_aten.add.Tensor, _aten.sub.Tensor})
"""What may be of a number and a tensor, which the exporter knows in this order without `alpha`."""
_CLAMPS = frozenset({_aten.clamp.default, _aten.clip.default})
_IN_TYPE_OF_RESULT = frozenset(
    {
        *(_aten.floor_divide.default, _aten.pow.Tensor_Scalar, _aten.rsub.Scalar),
        *(_aten.cumprod.default, _aten.cumsum.default, _aten.linalg_vector_norm.default),
        _aten.full_like.default,
        *(_aten.log_softmax.int, _aten.softmax.int, _aten.mean.default, _aten.mean.dim),
        *(_aten.nansum.default, _aten.prod.default, _aten.prod.dim_int),
        *(_aten.special_log_softmax.default, _aten.special_softmax.default),
        *(_aten.sum.default, _aten.sum.dim_IntList),
    }
)
"""What computes in the type of its result: that of a number beside a tensor, or a `dtype` that is
asked for. The exporter computes in the type of the tensor, and casts what it has lost digits of."""


def give_one_type(program: ExportedProgram) -> None:
    """Let operators of `program` that have operands of several types have one, in place."""
    changed = False
    for node in tuple(program.graph.nodes):
        if node.target in _SUMS:
            changed |= _give_a_tensor(program.graph, node)
        elif node.target in _CLAMPS:
            changed |= _give_one_kind(node)
        elif node.target in _IN_TYPE_OF_RESULT and _type(node) is not torch.bool:
            changed |= _widen_tensors(program.graph, node, _type(node))
        if node.target in _NORMALIZATIONS:
            changed |= _give_one_type(program.graph, node)
    if changed:
        program.graph_module.recompile()


def _give_a_tensor(graph: fx.Graph, node: fx.Node) -> bool:
    """Let the first operand of `node` be a tensor; return whether it was a number."""
    number = node.args[0]
    if not isinstance(number, (int, float)):
        return False
    with graph.inserting_before(node):
        full = graph.call_function(_aten.full.default, ([], number), {"dtype": _type(node)})
    full.meta = noted(node, val=node.meta["val"].new_full([], number))
    node.update_arg(0, full)
    return True


def _give_one_type(graph: fx.Graph, node: fx.Node) -> bool:
    """Do so for `node`; return whether it had operands of several types."""
    types = {_type(operand) for operand in node.all_input_nodes}
    if len(types) == 1:
        return False
    wide = reduce(torch.promote_types, types)
    wanted = _type(node)
    _widen_tensors(graph, node, wide)
    if wanted is not wide:
        with graph.inserting_after(node):
            result = _cast(graph, node, wanted)
        node.replace_all_uses_with(result, delete_user_cb=lambda user: user is not result)
        node.meta = {**node.meta, "val": node.meta["val"].to(wide)}
    return True


def _give_one_kind(clamp: fx.Node) -> bool:
    """Let both limits of `clamp` be float where one is; return whether they differed."""
    low, high = (*clamp.args, None, None)[1:3]
    given = {"min": low, "max": high, **clamp.kwargs}
    limits = [one for one in (given["min"], given["max"]) if isinstance(one, (int, float))]
    if {type(limit) for limit in limits} != {int, float}:
        return False
    # By position: the exporter promotes what is given so.
    clamp.args, clamp.kwargs = (clamp.args[0], *map(float, limits)), {}
    return True


def _widen_tensors(graph: fx.Graph, node: fx.Node, wide: torch.dtype) -> bool:
    """Let all tensors that `node` reads have the type `wide`; return whether any had not."""
    tensors = (each for each in node.all_input_nodes if isinstance(each.meta["val"], torch.Tensor))
    narrow = [operand for operand in tensors if _type(operand) is not wide]
    for operand in narrow:
        with graph.inserting_before(node):
            node.replace_input_with(operand, _cast(graph, operand, wide))
    return bool(narrow)


def _type(node: fx.Node) -> torch.dtype:
    dtype: torch.dtype = node.meta["val"].dtype
    return dtype


def _cast(graph: fx.Graph, node: fx.Node, dtype: torch.dtype) -> fx.Node:
    cast = graph.call_function(_aten._to_copy.default, (node,), {"dtype": dtype})
    cast.meta = noted(node, val=node.meta["val"].to(dtype))
    return cast


_AXES = frozenset({"dim", "dims"})
"""What PyTorch calls the arguments that name axes."""

_WRITTEN = "value"
"""What it calls the argument that is a number for all elements."""


def give_axes(program: ExportedProgram) -> None:
    """Let no operator of `program`, which is functional, name an axis of a number, in place."""
    for part in program.graph_module.modules():
        if not isinstance(part, fx.GraphModule):
            continue
        found = [node for node in part.graph.nodes if _is_along_number(node)]
        for node in found:
            _give_axis(part.graph, node)
        if found:
            part.recompile()


def _is_along_number(node: fx.Node) -> bool:
    """Tell whether `node` computes along an axis of a tensor that has none; views stay."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not (node.args and _is_number(node.args[0])):
        return False
    given = {item.name: item.default_value for item in schema.arguments}
    given.update(zip(given, node.args, strict=False))
    given.update(node.kwargs)
    named = any(given[name] not in (None, []) for name in _AXES & given.keys())
    return named and all(item.alias_info is None for item in schema.returns)


def _is_number(value: object) -> bool:
    """Tell whether `value` is a node whose result is a tensor without axes."""
    result = value.meta.get("val") if isinstance(value, fx.Node) else None
    return isinstance(result, torch.Tensor) and result.dim() == 0


def _give_axis(graph: fx.Graph, node: fx.Node) -> None:
    """Give the numbers among the operands of `node` an axis; its results keep their shapes.

    What is written everywhere stays a number, as it has to be.
    """
    names = [item.name for item in node.target._schema.arguments]  # type: ignore[union-attr]
    written = [value for name, value in zip(names, node.args, strict=False) if name == _WRITTEN]
    with graph.inserting_before(node):
        for operand in node.all_input_nodes:
            if _is_number(operand) and operand not in written:
                node.replace_input_with(operand, _reshaped(graph, operand, (1,)))
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda operand: operand.meta["val"])
    made = node.target(*args, **kwargs)  # type: ignore[operator]  # an operator, as it has a schema
    for result, value in list(_results(node, made)):
        shape = result.meta["val"].shape
        result.meta = {**result.meta, "val": value}
        if value.shape != shape:
            readers = list(result.users)
            with graph.inserting_after(result):
                kept = _reshaped(graph, result, tuple(shape))
            for reader in readers:
                reader.replace_input_with(result, kept)
    node.meta = {**node.meta, "val": made}


def _results(
    node: fx.Node, made: torch.Tensor | tuple[torch.Tensor, ...]
) -> Iterator[tuple[fx.Node, torch.Tensor]]:
    """Yield the nodes that are results of `node`, with those of `made` that belong to them."""
    if isinstance(made, torch.Tensor):
        yield node, made
        return
    for user in node.users:
        assert user.target is operator.getitem
        index = user.args[1]
        assert isinstance(index, int)
        yield user, made[index]


def _reshaped(graph: fx.Graph, node: fx.Node, shape: tuple[int, ...]) -> fx.Node:
    result = graph.call_function(torch.ops.aten.reshape.default, (node, list(shape)))
    result.meta = {**node.meta, "val": node.meta["val"].reshape(shape)}
    return result


_RESHAPE = torch.ops.aten.reshape.default


def pass_nothing_on(program: ExportedProgram) -> None:
    """Let no operator of `program`, which is functional, make nothing of nothing, in place."""
    for part in program.graph_module.modules():
        if not isinstance(part, fx.GraphModule):
            continue
        found = [node for node in part.graph.nodes if _makes_nothing(node)]
        for node in found:
            shape = list(node.meta["val"].shape)
            node.target, node.args, node.kwargs = _RESHAPE, (node.all_input_nodes[0], shape), {}
        if found:
            part.recompile()


def _makes_nothing(node: fx.Node) -> bool:
    """Tell whether `node` has one operand, and neither that nor the result has an element."""
    if not isinstance(node.target, torch._ops.OpOverload) or len(node.all_input_nodes) != 1:
        return False
    result, operand = (_type_of_nothing(item) for item in (node, node.all_input_nodes[0]))
    return result is not None and result == operand


def _type_of_nothing(node: fx.Node) -> torch.dtype | None:
    """Return the type of the result of `node`, if that has known sizes and no elements."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or has_free_symbols(value):
        return None
    return value.dtype if value.numel() == 0 else None


def stop_statistics(program: ExportedProgram) -> None:
    """Let no gradient come through means and deviations that norms give, as in PyTorch, in place.

    Of norms of groups it lets them through if both are read.
    """
    graph = program.graph
    for node in graph.nodes:
        read = [part for part in node.users if node.target in _NORMS and part.args[1] in (1, 2)]
        if node.target is _GROUP_NORM and sum(bool(part.users) for part in read) == len((1, 2)):
            continue
        for part in read:
            with graph.inserting_after(part):
                stopped = graph.call_function(_aten.detach.default, (part,))
            stopped.meta.update(part.meta)
            part.replace_all_uses_with(stopped, lambda user, own=stopped: user is not own)
    program.graph_module.recompile()


_GROUP_NORM = _aten.native_group_norm.default
_NORMS = frozenset(
    {
        _GROUP_NORM,
        _aten.native_layer_norm.default,
        _aten._native_batch_norm_legit.no_stats,
        _aten._batch_norm_with_update_functional.default,
    }
)
"""Those that are translated into operators through which gradients would come."""


def spell_doubles(program: ExportedProgram) -> ExportedProgram:
    """Return `program`, which is functional, with such operators of float64 spelled out."""
    found = (node for node in program.graph.nodes if node.target in SPELLED)
    if not any(_is_double(node.meta["val"]) for node in found):
        return program
    rules = {operator: _of_doubles(spell) for operator, spell in SPELLED.items()}
    spelled: ExportedProgram = program.run_decompositions(rules)
    return spelled


def _is_double(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype is torch.float64


def _of_doubles(spell: Callable[..., object]) -> Callable[..., object]:
    """Return `spell` for float64 alone; operators of other types stay."""

    def rule(x: object, *args: object, **kwargs: object) -> object:
        wanted = _is_double(x) or kwargs.get("dtype") is torch.float64
        return spell(x, *args, **kwargs) if wanted else NotImplemented

    return rule


@contextmanager
def compared_in_their_types() -> Iterator[None]:
    """Let exports compare in the type that operands have together, not in a wider one."""
    before = ElementwiseTypePromotionRule.preview_type_promotion

    def preview(
        rule: ElementwiseTypePromotionRule, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> TypePromotionSnapshot:
        found: TypePromotionSnapshot = before(rule, args, kwargs)
        if rule.promotion_kind is not KINDS.ALWAYS_BOOL:
            return found
        operands = [args[position] for position in found.args_dtypes]
        _, common = elementwise_dtypes(*operands, type_promotion_kind=KINDS.DEFAULT)
        types = dict.fromkeys(found.args_dtypes, common)
        return TypePromotionSnapshot(types, found.kwargs_dtypes, found.out_dtype)

    with replaced(ElementwiseTypePromotionRule, "preview_type_promotion", preview):
        yield


@contextmanager
def numbers_in_float64() -> Iterator[None]:
    """Let exports cast numbers to float64 without another type in between."""
    before = OpRecorder._call_op

    def call(
        recorder: OpRecorder, signature: Any, inputs: dict[str, Any], attributes: Any, count: int
    ) -> Sequence[ir.Value]:
        if isinstance(inputs.get("input"), float) and _is_cast(signature, inputs, attributes):
            inputs = {**inputs, "input": ir.tensor(np.asarray(inputs["input"], np.float64))}
        made: Sequence[ir.Value] = before(recorder, signature, inputs, attributes, count)
        return made

    with replaced(OpRecorder, "_call_op", call):
        yield


def _is_cast(signature: Any, inputs: dict[str, Any], attributes: dict[str, Any]) -> bool:
    """Tell whether an operator casts to float64."""
    if signature.name == "Cast":
        return bool(attributes.get("to") == _DOUBLE)
    return signature.name == "CastLike" and getattr(inputs["target_type"], "dtype", None) == _DOUBLE
