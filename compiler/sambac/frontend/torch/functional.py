"""A recorded program without writes to tensors: new values of buffers are results.

torch.export turns one into the other by recording it once more, as it decomposes operators. A
program in which there is nothing to turn is copied: a third of the time that a small model takes to
compile would go into recording it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import torch
from torch import fx
from torch._C import DispatchKey
from torch._export.utils import _is_cia_op, _is_preservable_cia_op
from torch._export.verifier import SpecViolationError
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature
from torch.utils import _pytree as pytree

from pef.wording import listed
from sambac.errors import CompileError

from .capture import copied_graph, quiet
from .draws import UNIFORM
from .errors import refusal
from .pairs import on_parts
from .shortcuts import has_known_type
from .states import is_complex

_INSTANCE_NORM = torch.ops.aten.instance_norm.default
_LIFTED = torch.ops.aten.lift_fresh_copy.default
"""What takes a constant of `forward`, and is a copy where nothing is written."""

_REFUSALS = (
    *(RuntimeError, TypeError, ValueError, KeyError, NotImplementedError),
    SpecViolationError,
)


def functional(program: ExportedProgram, name: str) -> ExportedProgram:
    """Return `program` without writes to tensors: new values of buffers are results.

    Operators stay what they are, but for those that write without saying so. `name` is what
    messages call the program.
    """
    table: dict[Callable[..., object], Callable[..., object]] = {
        **UNIFORM,
        **(on_parts(found) if (found := _complex_operators(program)) else {}),
        torch.ops.aten.std_mean.correction: std_mean,
    }
    if _keeps_statistics(program):
        table[_INSTANCE_NORM] = torch.export.default_decompositions()[_INSTANCE_NORM]
    if _is_functional(program, table):
        return _copied(program)
    with quiet():
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


def _is_functional(program: ExportedProgram, table: Mapping[Callable[..., object], object]) -> bool:
    """Tell whether recording `program` once more by `table` would change nothing."""
    results = set(program.graph.output_node().all_input_nodes)
    return all(_stays(node, results, table) for node in program.graph.nodes)


def _stays(
    node: fx.Node, results: set[fx.Node], table: Mapping[Callable[..., object], object]
) -> bool:
    if node.op == "output":
        return True
    if not has_known_type(node.meta.get("val")):
        return False
    if node.op == "placeholder":
        return node not in results
    if node.op != "call_function" or not node.users:
        return False
    return node.target is operator.getitem or (
        isinstance(node.target, OpOverload) and node.target not in table and _is_kept(node.target)
    )


@cache
def _is_kept(target: OpOverload) -> bool:
    """Tell whether PyTorch lets an operator be where nothing is written: a pure one, or a view.

    Rules in Python say what some become where gradients may be taken.
    """
    if target.namespace != "aten" or target._schema.is_mutable or target is _LIFTED:
        return False
    if not {DispatchKey.Meta}.issuperset(target.py_kernels):
        return False
    return not _is_cia_op(target) or _is_preservable_cia_op(target)


def _copied(program: ExportedProgram) -> ExportedProgram:
    signature = program.graph_signature
    return program._update(
        copied_graph(program),
        ExportGraphSignature([*signature.input_specs], [*signature.output_specs]),
    )


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


def std_mean(
    x: torch.Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The standard deviation over the axes `dim`, all of them if None, and the mean.

    The exporter cannot make one type of the types of an operator with two results.
    """
    axes = list(dim or range(x.dim()))
    deviation = torch.std(x, axes, correction=correction, keepdim=keepdim)
    return deviation, torch.mean(x, axes, keepdim=keepdim)
