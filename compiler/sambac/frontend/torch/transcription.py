"""A program without writes, written out where it is known what recording it once more would give.

Recording takes as long as the first recording of a module did. What is written here is the same,
but for assertions of types, which nothing reads.

    flatten(x, 1), reshape(x, s)     ->  view(x, s), or a view of a copy without gaps
    x.contiguous(), x.to(t)          ->  x, or a copy of it
    chunk, narrow, movedim           ->  split, slice, permute
    dropout(x, p, False)             ->  clone(x)
    batch_norm(x, w, b, mean, var)   ->  what gives the next statistics too
    y.add_(x)                        ->  add(y, x), which is read where y was from there on

Where anything else stands, nothing is written.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from types import MappingProxyType
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._C import DispatchKey
from torch._export.utils import _is_cia_op, _is_preservable_cia_op
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    OutputKind,
    OutputSpec,
    TensorArgument,
)

from .names import renamed
from .shortcuts import has_known_type
from .writes import viewed, written_by

_aten = torch.ops.aten
_DRAWS = torch.Tag.nondeterministic_seeded


class NotKnownError(Exception):
    """Something stands in a program of which it is not known what becomes of it."""


Rule: TypeAlias = Callable[["_Transcript", fx.Node, tuple[Any, ...], dict[str, Any]], fx.Node]
"""Writes what becomes of a node that now has those arguments, and returns its result."""


def transcribed(program: ExportedProgram, spelled: Mapping[Any, object]) -> ExportedProgram | None:
    """Return `program` without writes, or None where it has to be recorded for that.

    What is `spelled` has to be. The graph of the argument is not changed.
    """
    transcript = _Transcript(program, spelled)
    try:
        signature = transcript.write()
    except NotKnownError:
        return None
    module = fx.GraphModule(program.graph_module, transcript.graph)
    module.meta.update(program.graph_module.meta)
    return program._update(module, signature)


class _Transcript:
    """The new graph of `program`, and what stands there for each of its nodes so far."""

    def __init__(self, program: ExportedProgram, spelled: Mapping[Any, object]) -> None:
        self.graph = fx.Graph()
        self._program = program
        self._spelled = spelled
        self._copies: dict[fx.Node, fx.Node] = {}
        self._buffers = {
            spec.arg.name: spec.target
            for spec in program.graph_signature.input_specs
            if spec.kind is InputKind.BUFFER
        }
        self._written: dict[str, fx.Node] = {}

    def write(self) -> ExportGraphSignature:
        """Write the whole, and return its signature."""
        live = _live(self._program.graph)
        for node in self._program.graph.nodes:
            if node.op == "output":
                return self._write_results(node)
            if node.op == "placeholder":
                self._copy_input(node)
            elif node in live:
                self._copies[node] = self._copied(node)
        raise NotKnownError

    def call(
        self,
        like: fx.Node,
        target: OpOverload | Callable[..., object],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None = None,
        value: object = None,
    ) -> fx.Node:
        """Add a call, named as a recording does, that stands where `like` does.

        Without a `value` it is what the operator says of those of the arguments.
        """
        packet = target.overloadpacket.__name__ if isinstance(target, OpOverload) else None
        name = None if packet is None else self.graph._target_to_str(packet)
        made = self.graph.create_node("call_function", target, args, kwargs, name)
        if value is None:
            read = fx.map_arg((args, kwargs or {}), lambda one: one.meta["val"])
            value = target(*read[0], **read[1])
        made.meta = {**like.meta, "val": value}
        return made

    def parts(self, results: fx.Node, wanted: Sequence[int]) -> list[fx.Node]:
        """Add those `results` of a call that are `wanted`, named as if all were."""
        found = [
            self.call(results, operator.getitem, (results, at), value=value)
            for at, value in enumerate(results.meta["val"])
        ]
        for at, part in enumerate(found):
            if at not in wanted:
                self.graph.erase_node(part)
        return [found[at] for at in wanted]

    def next_state(self, node: fx.Node, value: fx.Node) -> None:
        """Let `value` be what is read from here on where `node` is, a buffer or what is made."""
        base = _base(node)
        if not _is_alone(base):
            raise NotKnownError
        if base.op == "placeholder":
            if base.name not in self._buffers:
                raise NotKnownError
            self._written[base.name] = value
        names = [base]
        for one in names:
            self._copies[one] = value
            names += [user for user in one.users if written_by(user)]

    def _copy_input(self, node: fx.Node) -> None:
        if not has_known_type(node.meta.get("val")):
            raise NotKnownError
        copy = self.graph.node_copy(node)
        copy.name, copy.target = node.name, node.target
        self._copies[node] = copy

    def _copied(self, node: fx.Node) -> fx.Node:
        if node.op != "call_function" or not has_known_type(node.meta.get("val")):
            raise NotKnownError
        given: Any = fx.map_arg((node.args, node.kwargs), self._copies.__getitem__)
        target: Any = node.target
        rule = _RULES.get(target)
        if rule is not None:
            return rule(self, node, *given)
        if target is not operator.getitem and not self._stays(target):
            raise NotKnownError
        args, kwargs = given
        return self.call(node, target, args, kwargs, node.meta["val"])

    def _stays(self, target: object) -> bool:
        return isinstance(target, OpOverload) and target not in self._spelled and _is_kept(target)

    def _write_results(self, node: fx.Node) -> ExportGraphSignature:
        """Write the output; new values of buffers come first, in the order of these."""
        results: Any = fx.map_arg(node.args[0], self._copies.__getitem__)
        if any(isinstance(one, fx.Node) and one.op == "placeholder" for one in results):
            raise NotKnownError
        written = {name: self._written[name] for name in self._buffers if name in self._written}
        if written and _are_shared(self._program):
            raise NotKnownError
        output = self.graph.output(tuple(results))
        output.meta = dict(node.meta)
        signature = renamed(self._program.graph_signature, self.graph)
        states = [
            OutputSpec(OutputKind.BUFFER_MUTATION, TensorArgument(one.name), self._buffers[name])
            for name, one in written.items()
        ]
        output.args = ((*written.values(), *results),)
        return ExportGraphSignature(signature.input_specs, [*states, *signature.output_specs])


def _live(graph: fx.Graph) -> set[fx.Node]:
    """Return what results and writes depend on; nothing else may draw, or say what must hold."""
    live: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output" or written_by(node) or _writes_statistics(node) or node in live:
            live.update((node, *node.all_input_nodes))
        elif node.op == "call_function" and not _is_idle(node.target):
            raise NotKnownError
    return live


def _is_idle(target: object) -> bool:
    """Tell whether a call of `target` may be left out if nothing reads it."""
    if target is operator.getitem or target is _aten._assert_tensor_metadata.default:
        return True
    if not isinstance(target, OpOverload) or target.namespace != "aten":
        return False
    return bool(target._schema.returns) and _DRAWS not in target.tags


@cache
def _is_kept(target: OpOverload) -> bool:
    """Tell whether PyTorch lets an operator be where nothing is written: a pure one, or a view.

    Rules in Python say what some become where gradients may be taken.
    """
    if target.namespace != "aten" or target._schema.is_mutable:
        return False
    if _is_cia_op(target):
        return bool(_is_preservable_cia_op(target))
    return {DispatchKey.Meta}.issuperset(target.py_kernels)


def _base(node: fx.Node) -> fx.Node:
    """Return what `node` is, if that was written and returned by all before it."""
    while written := written_by(node):
        node = written[0]
    return node


def _is_alone(node: fx.Node) -> bool:
    """Tell whether nothing but what writes `node` returns its memory, whatever it is called by."""
    if viewed(node) is not None and not written_by(node):
        return False
    for user in node.users:
        if written := written_by(user):
            if written != [node] or not _is_alone(user):
                return False
        elif viewed(user) is not None:
            return False
    return True


def _are_shared(program: ExportedProgram) -> bool:
    """Tell whether a buffer is the same tensor as another one."""
    buffers = [id(tensor) for _, tensor in program.named_buffers()]
    return len({*buffers}) < len(buffers)


def _same(script: _Transcript, node: fx.Node, args: tuple[Any, ...], _: object) -> fx.Node:
    """What is the operand itself, as a `detach_` of a constant is."""
    return args[0]  # type: ignore[no-any-return]


def _renamed_to(target: OpOverload) -> Rule:
    """What is the same operator by another name."""

    def rule(
        script: _Transcript, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> fx.Node:
        return script.call(node, target, args, kwargs, node.meta["val"])

    return rule


def _viewed(
    script: _Transcript, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> fx.Node:
    value, operand = node.meta["val"], args[0].meta["val"]
    if kwargs or not operand.numel():
        raise NotKnownError
    if node.target is _aten.flatten.using_ints and value.dim() == operand.dim():
        return args[0]  # type: ignore[no-any-return]
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


def _without_gaps(script: _Transcript, node: fx.Node, operand: fx.Node) -> fx.Node:
    form = {"memory_format": torch.contiguous_format}
    return script.call(node, _aten.clone.default, (operand,), form)


def _contiguous(
    script: _Transcript, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> fx.Node:
    if kwargs.get("memory_format", torch.contiguous_format) is not torch.contiguous_format:
        raise NotKnownError
    if args[0].meta["val"].is_contiguous():
        return args[0]  # type: ignore[no-any-return]
    return _without_gaps(script, node, args[0])


def _converted(
    script: _Transcript, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> fx.Node:
    names = [argument.name for argument in node.target._schema.arguments]  # type: ignore[union-attr]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    if given.get("copy") or given.get("memory_format") or given.get("pin_memory"):
        raise NotKnownError
    if str(given.get("device") or "cpu") != "cpu":
        raise NotKnownError
    if given.get("layout") not in (None, torch.strided):
        raise NotKnownError
    value = node.meta["val"]
    if value.dtype is args[0].meta["val"].dtype:
        return args[0]  # type: ignore[no-any-return]
    return script.call(node, _aten._to_copy.default, args[:1], {"dtype": value.dtype}, value)


def _chunk(
    script: _Transcript, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> fx.Node:
    axis = kwargs.get("dim", args[2] if len(args) > len(("x", "chunks")) else 0)
    size = args[0].meta["val"].shape[axis]
    if not size:
        raise NotKnownError
    each = -(-size // args[1])
    return script.call(node, _aten.split.Tensor, (args[0], each, axis), value=node.meta["val"])


def _narrow(script: _Transcript, node: fx.Node, args: tuple[Any, ...], _: object) -> fx.Node:
    x, axis, start, length = args
    if not isinstance(start, int) or start < 0:
        raise NotKnownError
    given = (x, axis, start, start + length)
    return script.call(node, _aten.slice.Tensor, given, value=node.meta["val"])


def _movedim(script: _Transcript, node: fx.Node, args: tuple[Any, ...], _: object) -> fx.Node:
    rank = args[0].meta["val"].dim()
    source, wanted = (one % rank for one in args[1:])
    order = [axis for axis in range(rank) if axis != source]
    order.insert(wanted, source)
    return script.call(node, _aten.permute.default, (args[0], order), value=node.meta["val"])


def _like(target: OpOverload) -> Rule:
    """What takes the shape of another tensor as a list of sizes."""

    def rule(script: _Transcript, node: fx.Node, args: tuple[Any, ...], _: object) -> fx.Node:
        value = node.meta["val"]
        return script.call(node, target, (args[0], [*value.shape]), value=value)

    return rule


def _dropout(script: _Transcript, node: fx.Node, args: tuple[Any, ...], _: object) -> fx.Node:
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
    script: _Transcript, node: fx.Node, args: tuple[Any, ...], given: dict[str, Any]
) -> fx.Node:
    if not args[2]:
        return args[0]  # type: ignore[no-any-return]
    dropped, first = _dropout(script, node, args, given), node.args[0]
    assert isinstance(first, fx.Node)
    script.next_state(first, dropped)
    return dropped


def _batch_norm(script: _Transcript, node: fx.Node, args: tuple[Any, ...], _: object) -> fx.Node:
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


def _pooled_to_one(script: _Transcript, node: fx.Node, args: tuple[Any, ...], _: object) -> fx.Node:
    x, sizes = args
    if any(size != 1 for size in sizes) or not x.meta["val"].numel():
        raise NotKnownError
    axes = [-1 - axis for axis in range(len(sizes))]
    return script.call(node, _aten.mean.dim, (x, axes, True), value=node.meta["val"])


def _difference(
    script: _Transcript, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> fx.Node:
    """The first difference along an axis; what is put before and after belongs to what differs."""
    names = ("x", "n", "dim", "prepend", "append")
    given = {"n": 1, "dim": -1, **dict(zip(names, args, strict=False)), **kwargs}
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


def _writes_statistics(node: fx.Node) -> bool:
    """Tell of what writes without saying so: the fourth and fifth argument, if the sixth says."""
    return node.target is _aten.batch_norm.default and bool(node.args[5])


def _written(
    target: OpOverload,
    script: _Transcript,
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


_IN_PLACE = (
    *("add_.Tensor", "sub_.Tensor", "mul_.Tensor", "relu_.default", "leaky_relu_.default"),
    *("silu_.default", "hardswish_.default", "hardtanh_.default", "relu6_.default"),
    *("sigmoid_.default", "tanh_.default", "div_.Tensor", "elu_.default"),
)


def _overload(name: str) -> OpOverload:
    packet, overload = name.split(".")
    return getattr(getattr(_aten, packet), overload)  # type: ignore[no-any-return]


_RULES: Mapping[Any, Rule] = MappingProxyType(
    {
        **dict.fromkeys(
            (_aten.reshape.default, _aten.flatten.using_ints, _aten.unflatten.int), _viewed
        ),
        **{
            _overload(name): partial(_written, _overload(name.replace("_.", ".")))
            for name in _IN_PLACE
        },
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
