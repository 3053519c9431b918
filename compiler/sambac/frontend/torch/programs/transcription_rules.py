"""What operators become where nothing is written, each a rule that adds calls to a transcript.

A rule raises `NotKnownError` where it does not know what a recording would give.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._ops import OpOverload

from .transcript import NotKnownError, Transcript

_aten = torch.ops.aten


Rule: TypeAlias = Callable[[Transcript, fx.Node, tuple[Any, ...], dict[str, Any]], fx.Node]
"""Writes what becomes of a node that now has those arguments, and returns its result."""


def _operand(args: tuple[Any, ...]) -> fx.Node:
    operand = args[0]
    assert isinstance(operand, fx.Node)
    return operand


def _renamed_to(target: OpOverload) -> Rule:
    """What is the same operator by another name."""

    def rule(
        script: Transcript, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> fx.Node:
        return script.call(node, target, args, kwargs, node.meta["val"])

    return rule


def _viewed(script: Transcript, node: fx.Node, args: tuple[Any, ...], _: object) -> fx.Node:
    value, operand = node.meta["val"], args[0].meta["val"]
    if not operand.numel():
        raise NotKnownError
    if node.target is _aten.flatten.using_ints and value.dim() == operand.dim():
        return _operand(args)
    sizes = [*(args[1] if node.target is _aten.reshape.default else value.shape)]
    if _can_view(operand, value.shape):
        return script.call(node, _aten.view.default, (args[0], sizes), value=value)
    whole = _without_gaps(script, node, args[0])
    return script.call(node, _aten._unsafe_view.default, (whole, [*value.shape]), value=value)


def _can_view(operand: torch.Tensor, sizes: Sequence[int]) -> bool:
    described = torch.empty_strided(operand.shape, operand.stride(), device="meta")
    try:
        described.view(sizes)
    except RuntimeError:
        return False
    return True


def _without_gaps(script: Transcript, node: fx.Node, operand: fx.Node) -> fx.Node:
    form = {"memory_format": torch.contiguous_format}
    return script.call(node, _aten.clone.default, (operand,), form)


def _contiguous(
    script: Transcript, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> fx.Node:
    if kwargs.get("memory_format", torch.contiguous_format) is not torch.contiguous_format:
        raise NotKnownError
    if args[0].meta["val"].is_contiguous():
        return _operand(args)
    return _without_gaps(script, node, args[0])


def _converted(
    script: Transcript, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> fx.Node:
    target: Any = node.target
    names = [argument.name for argument in target._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    if given.get("copy") or given.get("memory_format") or given.get("pin_memory"):
        raise NotKnownError
    if str(given.get("device") or "cpu") != "cpu":
        raise NotKnownError
    if given.get("layout") not in (None, torch.strided):
        raise NotKnownError
    value = node.meta["val"]
    if value.dtype is args[0].meta["val"].dtype:
        return _operand(args)
    return script.call(node, _aten._to_copy.default, args[:1], {"dtype": value.dtype}, value)


def _chunk(script: Transcript, node: fx.Node, args: tuple[Any, ...], _: object) -> fx.Node:
    x, chunks, axis = args if len(args) == len(("x", "chunks", "dim")) else (*args, 0)
    size = x.meta["val"].shape[axis]
    if not size:
        raise NotKnownError
    each = -(-size // chunks)
    return script.call(node, _aten.split.Tensor, (x, each, axis), value=node.meta["val"])


def _narrow(script: Transcript, node: fx.Node, args: tuple[Any, ...], _: object) -> fx.Node:
    x, axis, start, length = args
    if not isinstance(start, int) or start < 0:
        raise NotKnownError
    given = (x, axis, start, start + length)
    return script.call(node, _aten.slice.Tensor, given, value=node.meta["val"])


def _movedim(script: Transcript, node: fx.Node, args: tuple[Any, ...], _: object) -> fx.Node:
    rank = args[0].meta["val"].dim()
    if not rank:
        raise NotKnownError
    source, wanted = (one % rank for one in args[1:])
    order = [axis for axis in range(rank) if axis != source]
    order.insert(wanted, source)
    return script.call(node, _aten.permute.default, (args[0], order), value=node.meta["val"])


def _like(target: OpOverload) -> Rule:
    """What takes the shape of another tensor as a list of sizes."""

    def rule(script: Transcript, node: fx.Node, args: tuple[Any, ...], _: object) -> fx.Node:
        value = node.meta["val"]
        return script.call(node, target, (args[0], [*value.shape]), value=value)

    return rule


def _dropout(script: Transcript, node: fx.Node, args: tuple[Any, ...], _: object) -> fx.Node:
    x, rate, trains = args
    value = node.meta["val"]
    if not trains:
        return script.call(node, _aten.clone.default, (x,), value=value)
    if not 0 < float(rate) < 1:
        raise NotKnownError
    both = (value, value.to(torch.bool))
    [dropped] = script.parts(script.call(node, _aten.native_dropout.default, args, value=both), [0])
    return dropped


def _dropout_in_place(
    script: Transcript, node: fx.Node, args: tuple[Any, ...], given: dict[str, Any]
) -> fx.Node:
    if not args[2]:
        return _operand(args)
    dropped, first = _dropout(script, node, args, given), node.args[0]
    assert isinstance(first, fx.Node)
    script.next_state(first, dropped)
    return dropped


def _batch_norm(script: Transcript, node: fx.Node, args: tuple[Any, ...], _: object) -> fx.Node:
    x, weight, bias, mean, variance, trains, momentum, epsilon = args[:8]
    value = node.meta["val"]
    tensors = [one for one in (x, weight, bias, mean, variance) if one is not None]
    types = {one.meta["val"].dtype for one in tensors}
    if mean is None or variance is None or len(types) > 1 or not value.numel():
        raise NotKnownError
    statistics = (mean.meta["val"], variance.meta["val"])
    if not trains:
        target = _aten._native_batch_norm_legit_no_training.default
        results = script.call(
            node, target, (*args[:5], momentum, epsilon), value=(value, *statistics)
        )
        return script.parts(results, [0])[0]
    target = _aten._native_batch_norm_legit_functional.default
    results = script.call(node, target, args[:8], value=(value, *statistics, *statistics))
    y, *following = script.parts(results, [0, 3, 4])
    for state, kept in zip(node.args[3:5], following, strict=True):
        assert isinstance(state, fx.Node)
        script.next_state(state, kept)
    return y


def _pooled_to_one(script: Transcript, node: fx.Node, args: tuple[Any, ...], _: object) -> fx.Node:
    x, sizes = args
    if any(size != 1 for size in sizes) or not x.meta["val"].numel():
        raise NotKnownError
    axes = [-1 - axis for axis in range(len(sizes))]
    return script.call(node, _aten.mean.dim, (x, axes, True), value=node.meta["val"])


def _difference(script: Transcript, node: fx.Node, args: tuple[Any, ...], _: object) -> fx.Node:
    """The first difference along an axis; what is put before and after belongs to what differs."""
    names = ("x", "n", "dim", "prepend", "append")
    given = {"n": 1, "dim": -1, **dict(zip(names, args, strict=False))}
    around = [one for one in (given.get("prepend"), given["x"], given.get("append")) if one]
    value, axis = node.meta["val"], given["dim"]
    if given["n"] != 1 or value.dtype is torch.bool or not value.numel():
        raise NotKnownError
    if len({one.meta["val"].dtype for one in around}) > 1:
        raise NotKnownError
    whole = around[0]
    if len(around) > 1:
        whole = script.call(node, _aten.cat.default, (around, axis))
    size = whole.meta["val"].shape[axis]
    before, after = (
        script.call(node, _aten.slice.Tensor, (whole, axis, start, end))
        for start, end in ((0, size - 1), (1, size))
    )
    return script.call(node, _aten.sub.Tensor, (after, before), value=value)


def writes_statistics(node: fx.Node) -> bool:
    """Tell of what writes without saying so: the fourth and fifth argument, if the sixth says."""
    return node.target is _aten.batch_norm.default and bool(node.args[5])


def _written(
    target: OpOverload,
    script: Transcript,
    node: fx.Node,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> fx.Node:
    value, first = node.meta["val"], node.args[0]
    assert isinstance(first, fx.Node)
    tensors = [one for one in args if isinstance(one, fx.Node)]
    numbers = [one for one in (*args, *kwargs.values()) if isinstance(one, (float, complex))]
    if {one.meta["val"].dtype for one in tensors} != {value.dtype}:
        raise NotKnownError
    if not value.is_floating_point() and (numbers or value.dtype is torch.bool):
        raise NotKnownError
    result = script.call(node, target, args, kwargs, value)
    script.next_state(first, result)
    return result


_IN_PLACE: Mapping[OpOverload, OpOverload] = MappingProxyType(
    {
        _aten.add_.Tensor: _aten.add.Tensor,
        _aten.sub_.Tensor: _aten.sub.Tensor,
        _aten.mul_.Tensor: _aten.mul.Tensor,
        _aten.div_.Tensor: _aten.div.Tensor,
        _aten.relu_.default: _aten.relu.default,
        _aten.relu6_.default: _aten.relu6.default,
        _aten.leaky_relu_.default: _aten.leaky_relu.default,
        _aten.elu_.default: _aten.elu.default,
        _aten.silu_.default: _aten.silu.default,
        _aten.sigmoid_.default: _aten.sigmoid.default,
        _aten.tanh_.default: _aten.tanh.default,
        _aten.hardtanh_.default: _aten.hardtanh.default,
        _aten.hardswish_.default: _aten.hardswish.default,
    }
)
"""What operators that write are without writing."""

RULES: Mapping[Any, Rule] = MappingProxyType(
    {
        **dict.fromkeys(
            (_aten.reshape.default, _aten.flatten.using_ints, _aten.unflatten.int), _viewed
        ),
        **{target: partial(_written, pure) for target, pure in _IN_PLACE.items()},
        **dict.fromkeys((_aten.to.dtype, _aten.to.dtype_layout, _aten.to.device), _converted),
        _aten.contiguous.default: _contiguous,
        _aten.chunk.default: _chunk,
        _aten.narrow.default: _narrow,
        _aten.movedim.int: _movedim,
        _aten.expand_as.default: _like(_aten.expand.default),
        _aten.view_as.default: _like(_aten.view.default),
        _aten.dropout.default: _dropout,
        _aten.dropout_.default: _dropout_in_place,
        _aten.batch_norm.default: _batch_norm,
        _aten.adaptive_avg_pool2d.default: _pooled_to_one,
        _aten.diff.default: _difference,
        _aten.lift_fresh_copy.default: _renamed_to(_aten.clone.default),
        _aten.__and__.Tensor: _renamed_to(_aten.bitwise_and.Tensor),
        _aten.__or__.Tensor: _renamed_to(_aten.bitwise_or.Tensor),
        _aten.min.other: _renamed_to(_aten.minimum.default),
        _aten.max.other: _renamed_to(_aten.maximum.default),
    }
)
