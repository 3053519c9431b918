"""A program as it evaluates: torch.export records one mode of a module alone.

Where both modes compute the same, one export serves both.
"""

from __future__ import annotations

import torch
from torch import fx
from torch.export import ExportedProgram

from sambac.errors import CompileError
from sambac.frontend.source import Source
from sambac.graph.nodes import all_nodes, is_stop

from .capture import copied_graph
from .export import RANDOM
from .states import has_no_content

_MODES = frozenset({"train", "training", "use_input_stats"})
"""What PyTorch calls the arguments that let an operator drop, or use the batch's statistics."""

_DECOMPOSED = frozenset(
    {
        torch.ops.aten._native_batch_norm_legit_functional.default,
        torch.ops.aten.native_dropout.default,
    }
)


def as_it_evaluates(program: ExportedProgram, name: str) -> ExportedProgram:
    """Return `program` without dropout, and with running statistics where it keeps them.

    What was recorded in evaluation mode stays what it is. Raises `CompileError` for a decomposed
    program, in which modes are no arguments any more; `name` is what messages call it.
    """
    module = copied_graph(program)
    for part in module.modules():
        if isinstance(part, fx.GraphModule):
            for node in part.graph.nodes:
                if node.target in _DECOMPOSED:
                    raise CompileError(
                        f"{name} is decomposed, so that it cannot be told how it evaluates; give "
                        "what torch.export.export returns, without run_decompositions"
                    )
                _set_mode(node)
            part.recompile()
    return program._update(module, program.graph_signature)


def are_equal(one: ExportedProgram, other: ExportedProgram) -> bool:
    """Tell whether two recordings of one module have equal operators and constants."""
    return (
        str(one.graph_signature) == str(other.graph_signature)
        and _code(one) == _code(other)
        and one.constants.keys() == other.constants.keys()
        and all(_same(item, other.constants[name]) for name, item in one.constants.items())
    )


def says_the_same(source: Source) -> bool:
    """Tell whether nothing in an export for training is there for the sake of training alone.

    It stops gradients, draws what an evaluation translates otherwise, and updates buffers.
    """
    nodes = [*all_nodes(source.model.graph)]
    draws = any(node.op_type in RANDOM and node.domain == "" for node in nodes)
    updates = source.roles is not None and bool(source.roles.updates)
    return not (draws or updates or any(map(is_stop, nodes)))


def _code(program: ExportedProgram) -> list[tuple[str, str]]:
    parts = program.graph_module.named_modules()
    return [(name, part.code) for name, part in parts if isinstance(part, fx.GraphModule)]


def _same(one: object, other: object) -> bool:
    if one is other:
        return True
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return False
    if has_no_content(one) or has_no_content(other) or one.dtype is not other.dtype:
        return False
    return torch.equal(one, other)


def _set_mode(node: fx.Node) -> None:
    """Let an operator evaluate, in place."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None:
        return
    given = dict(zip((argument.name for argument in schema.arguments), node.args, strict=False))
    if "running_mean" in given and given["running_mean"] is None:
        return
    for index, argument in enumerate(given):
        if argument in _MODES:
            node.update_arg(index, False)
        elif argument == "dropout_p":
            node.update_arg(index, 0.0)
