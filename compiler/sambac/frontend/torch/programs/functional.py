"""A recorded program without writes to tensors: new values of buffers are results.

torch.export turns one into the other by recording it once more, as it decomposes operators. Where
it is known what would come of that, it is written out (see `transcription`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import fx
from torch._export.verifier import SpecViolationError
from torch.export import ExportedProgram
from torch.fx.experimental.proxy_tensor import (
    _proxy_tensor_disable_update_tensor_tracker as disable_proxy_updates,
)
from torch.utils import _pytree as pytree

from pef.wording import listed
from sambac.errors import CompileError
from sambac.frontend.torch.errors import refusal
from sambac.frontend.torch.own_operators import derivative_order, takes_derivatives
from sambac.frontend.torch.patching import quiet
from sambac.frontend.torch.states import is_complex

from .deviations import DEVIATIONS
from .divisors import DIVISORS
from .draws import UNIFORM
from .elimination import elimination, unchecked
from .loops import with_loops_written_out
from .masked.row_losses import losses_of_rows
from .masked.selections import SELECTIONS
from .neighbours import NEIGHBOURS
from .pairs import on_parts
from .regions import without_regions
from .transcription import transcribed
from .views import views_of_any_strides

_INSTANCE_NORM = torch.ops.aten.instance_norm.default
_OPENING = (
    torch.ops.aten.index.Tensor,
    torch.ops.aten.nonzero.default,
    torch.ops.aten.nonzero_numpy.default,
    torch.ops.aten.where.default,
)

Table = dict[Callable[..., object], Callable[..., object]]
"""What operators are decomposed into."""

_REFUSALS = (
    *(RuntimeError, TypeError, ValueError, LookupError, NotImplementedError),
    *(SpecViolationError, CompileError, AttributeError, SyntaxError),
)


def functional(program: ExportedProgram, name: str, *, training: bool) -> ExportedProgram:
    """Return `program` without writes to tensors: new values of buffers are results.

    Operators stay what they are, but for those that write without saying so. What is without
    gradients in a program that is for `training` is detached. `name` is what messages call the
    program.
    """
    program = with_loops_written_out(program, training=training)
    program = without_regions(program, training=training)
    table = _table(program)
    # An operator may return the tensor that it takes (`x.float()`), which is called after it from
    # there on. What is differentiated by keeps its first name, as all that reads it depends on it.
    differentiates = takes_derivatives(program)
    if not differentiates and (known := transcribed(program, table)) is not None:
        return known
    first = disable_proxy_updates() if differentiates else nullcontext()
    with quiet(), views_of_any_strides(), unchecked(), first:
        try:
            result: ExportedProgram = program.run_decompositions(table)
        except AssertionError as error:
            shared = _shared_buffers(program)
            if not shared:
                raise refusal(name, error) from error
            raise CompileError(
                f"{name} writes the buffers {listed(shared, separator=', ')}, which have other "
                "names too; let only one module hold what has them"
            ) from error
        except _REFUSALS as error:
            raise refusal(name, error) from error
    return result


def _table(program: ExportedProgram) -> Table:
    """Return what operators of `program` are decomposed into."""
    table: dict[Callable[..., object], Callable[..., object]] = {
        **UNIFORM,
        **elimination(derivative_order(program)),
        **DIVISORS,
        **SELECTIONS,
        **(on_parts(found) if (found := _complex_operators(program)) else {}),
        **DEVIATIONS,
        **NEIGHBOURS,
        **(losses_of_rows(program) if opens_sizes(program) else {}),
    }
    if _keeps_statistics(program):
        table[_INSTANCE_NORM] = torch.export.default_decompositions()[_INSTANCE_NORM]
    return table


def opens_sizes(program: ExportedProgram) -> bool:
    """Tell whether `program` may have sizes that values decide, as those of what masks select."""
    graph = program.graph
    return any(graph.find_nodes(op="call_function", target=target) for target in _OPENING)


def _complex_operators(program: ExportedProgram) -> set[object]:
    """Return the operators in `program` that compute with complex numbers."""
    found: set[object] = set()
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, fx.GraphModule) else ():
            values = [item.meta.get("val") for item in (node, *node.all_input_nodes)]
            if any(map(is_complex, pytree.tree_leaves((values, node.args, node.kwargs)))):
                found.add(node.target)
    return found


def _shared_buffers(program: ExportedProgram) -> list[str]:
    """Return the names of buffers that are the same tensor as one before."""
    first: dict[int, str] = {}
    buffers = dict(program.named_buffers())
    return [name for name in buffers if first.setdefault(id(buffers[name]), name) != name]


def _keeps_statistics(program: ExportedProgram) -> bool:
    """Tell whether an InstanceNorm has running statistics, its fourth and fifth arguments."""
    nodes = program.graph.find_nodes(op="call_function", target=_INSTANCE_NORM)
    return any(node.args[3] is not None for node in nodes)
