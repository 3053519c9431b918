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
from functools import cache
from typing import Any

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
from .transcription_rules import RULES, NotKnownError, writes_statistics
from .writes import viewed, written_by

_aten = torch.ops.aten
_DRAWS = torch.Tag.nondeterministic_seeded


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
        rule = RULES.get(target)
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
        if node.op == "output" or written_by(node) or writes_statistics(node) or node in live:
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
