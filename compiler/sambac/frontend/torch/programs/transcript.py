"""The graph that is written of a program without writes, and what stands in it for each value.

Where the program writes a value in place, what reads it from there on reads the new one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    OutputKind,
    OutputSpec,
    TensorArgument,
)

from sambac.frontend.torch.memory_of_nodes import viewed, written_by
from sambac.frontend.torch.modules.tape import memory_of, tensors_in
from sambac.frontend.torch.shortcuts import has_known_type

from .names import renamed


class NotKnownError(Exception):
    """Something stands in a program of which it is not known what becomes of it."""


class Transcript:
    """The new graph of `program`, and what stands there for each of its nodes so far."""

    def __init__(self, program: ExportedProgram) -> None:
        self.graph = fx.Graph()
        self._program = program
        self._copies: dict[fx.Node, fx.Node] = {}
        self._buffers = {
            spec.arg.name: spec.target
            for spec in program.graph_signature.input_specs
            if spec.kind is InputKind.BUFFER
        }
        self._written: dict[str, fx.Node] = {}

    def given(self, node: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of `node` as they stand in the new graph."""
        given: Any = fx.map_arg((node.args, node.kwargs), self._copies.__getitem__)
        args, kwargs = given
        return args, kwargs

    def put(self, node: fx.Node, copy: fx.Node) -> None:
        """Let `copy` stand for `node`."""
        self._copies[node] = copy

    def copy_input(self, node: fx.Node) -> None:
        """Add an input like `node`."""
        if not has_known_type(node.meta.get("val")):
            raise NotKnownError
        copy = self.graph.node_copy(node)
        copy.name, copy.target = node.name, node.target
        self.put(node, copy)

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
        if viewed(base) is not None:
            raise NotKnownError
        if base.op == "placeholder":
            if base.name not in self._buffers:
                raise NotKnownError
            self._written[base.name] = value
        for one in _results_of_writes(base):
            if any(user in self._copies and _is_view(user) for user in one.users):
                raise NotKnownError  # it has the new elements too
            self._copies[one] = value

    def write_results(self, node: fx.Node) -> ExportGraphSignature:
        """Write the output, and return the signature.

        New values of buffers come first, in the order of these.
        """
        [results], _ = self.given(node)
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


def _base(node: fx.Node) -> fx.Node:
    """Return what `node` is, if that was written and returned by all before it."""
    while written := written_by(node):
        node = written[0]
    return node


def _results_of_writes(base: fx.Node) -> list[fx.Node]:
    """Return `base` and all that it is called by what writes it."""
    found = [base]
    for one in found:
        found += [user for user in one.users if written_by(user) == [one]]
    return found


def _is_view(node: fx.Node) -> bool:
    return viewed(node) is not None and not written_by(node)


def _are_shared(program: ExportedProgram) -> bool:
    """Tell whether parameters, buffers or constants have memory in common."""
    states = {**dict(program.named_parameters()), **dict(program.named_buffers())}
    constants = {name: one for name, one in program.constants.items() if name not in states}
    memory = [memory_of(one) for one in tensors_in([*states.values(), *constants.values()])]
    return len({*memory}) < len(memory)
