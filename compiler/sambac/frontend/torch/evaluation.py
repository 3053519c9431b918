"""A program as it evaluates: torch.export records one mode of a module alone."""

from __future__ import annotations

import torch
from torch import fx
from torch.export import ExportedProgram

from sambac.errors import CompileError
from sambac.frontend.torch.programs.names import copied_graph

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
