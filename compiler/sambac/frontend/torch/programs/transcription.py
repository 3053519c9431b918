"""A program without writes, written out where it is known what recording it once more would give.

Recording takes as long as the first recording of a module did. What is written here is the same,
but for assertions of types, which nothing reads, and how views of what was written are called.

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
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import fx
from torch._C import DispatchKey
from torch._export.utils import _is_cia_op, _is_preservable_cia_op
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature

from sambac.frontend.torch.memory_of_nodes import written_by
from sambac.frontend.torch.shortcuts import has_known_type

from .transcript import NotKnownError, Transcript
from .transcription_rules import RULES, writes_statistics

_aten = torch.ops.aten
_DRAWS = torch.Tag.nondeterministic_seeded


def transcribed(program: ExportedProgram, spelled: Mapping[Any, object]) -> ExportedProgram | None:
    """Return `program` without writes, or None where it has to be recorded for that.

    What is `spelled` has to be. The graph of the argument is not changed.
    """
    transcript = Transcript(program)
    try:
        signature = _write(transcript, program.graph, spelled)
    except NotKnownError:
        return None
    module = fx.GraphModule(program.graph_module, transcript.graph)
    module.meta.update(program.graph_module.meta)
    return program._update(module, signature)


def _write(
    transcript: Transcript, graph: fx.Graph, spelled: Mapping[Any, object]
) -> ExportGraphSignature:
    """Write the whole `graph`, and return the signature."""
    live = _live(graph)
    for node in graph.nodes:
        if node.op == "placeholder":
            transcript.copy_input(node)
        elif node.op != "output" and node in live:
            if node.target in spelled:
                raise NotKnownError
            transcript.put(node, _copied(transcript, node))
    return transcript.write_results(graph.output_node())


def _copied(transcript: Transcript, node: fx.Node) -> fx.Node:
    """Add what becomes of a call, and return its result."""
    if node.op != "call_function" or not has_known_type(node.meta.get("val")):
        raise NotKnownError
    args, kwargs = transcript.given(node)
    target: Any = node.target
    if target is not operator.getitem and not _is_plain(target, kwargs):
        raise NotKnownError
    rule = RULES.get(target)
    if rule is not None:
        return rule(transcript, node, args, kwargs)
    if target is not operator.getitem and not _is_kept(target):
        raise NotKnownError
    return transcript.call(node, target, args, kwargs, node.meta["val"])


def _is_plain(target: object, kwargs: Mapping[str, object]) -> bool:
    """Tell whether an operator is called as a recording calls it: by name only what has to be."""
    if not isinstance(target, OpOverload):
        return False
    return all(one.kwarg_only for one in target._schema.arguments if one.name in kwargs)


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
