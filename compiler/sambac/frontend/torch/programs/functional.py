"""A recorded program without writes to tensors: new values of buffers are results.

torch.export turns one into the other by recording it once more, as it decomposes operators. Where
it is known what would come of that, it is written out (see `transcription`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch._export.verifier import SpecViolationError
from torch._ops import OpOverload
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_impls import op_implementations_dict
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from pef.wording import listed
from sambac.errors import CompileError
from sambac.frontend.torch.errors import refusal
from sambac.frontend.torch.patching import quiet
from sambac.frontend.torch.states import is_complex

from .deviations import DEVIATIONS
from .divisors import DIVISORS
from .draws import UNIFORM
from .elimination import ELIMINATION
from .loops import with_loops_written_out
from .masked.row_losses import losses_of_rows
from .masked.selections import SELECTIONS
from .neighbours import NEIGHBOURS
from .pairs import on_parts
from .regions import without_regions
from .transcription import transcribed

_INSTANCE_NORM = torch.ops.aten.instance_norm.default
_OPENING = (
    torch.ops.aten.index.Tensor,
    torch.ops.aten.nonzero.default,
    torch.ops.aten.nonzero_numpy.default,
    torch.ops.aten.where.default,
)
_STRIDED = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)

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
    if (known := transcribed(program, table)) is not None:
        return known
    with quiet(), views_of_any_strides():
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


@contextmanager
def views_of_any_strides() -> Iterator[None]:
    """Let a `view` that the strides of its operand do not allow be a copy while recording.

    What lies in memory how is up to an operator's kernel: attention recorded by its fused kernel
    gives heads beside each other, recorded without it one head after the other.
    """
    before = {op: op_implementations_dict[op] for op in _STRIDED}
    copies: list[OpOverload] = []

    def view(mode: FakeTensorMode, op: OpOverload, x: torch.Tensor, *shape: Any) -> object:
        try:
            return before[op](mode, op, x, *shape)
        except (ValueError, RuntimeError):
            copies.append(op)
            return before[op](mode, op, x, *shape, allow_copy=True)

    op_implementations_dict.update(dict.fromkeys(_STRIDED, view))
    try:
        yield
    finally:
        op_implementations_dict.update(before)
        if copies:
            # Fake tensors keep what an operator gave, and a module's own views stay refused.
            FakeTensorMode.cache_clear()


def _table(program: ExportedProgram) -> Table:
    """Return what operators of `program` are decomposed into."""
    table: dict[Callable[..., object], Callable[..., object]] = {
        **UNIFORM,
        **ELIMINATION,
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
