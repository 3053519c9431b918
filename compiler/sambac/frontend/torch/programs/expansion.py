"""Operators without a translation, each put as what recording the program once more would give.

PyTorch's exporter records a whole program again to take one of its operators apart, which takes as
long as the first recording of a module did. Here the operator alone is recorded, once for all calls
on tensors of the same shapes, and what it becomes is written in the place of each call.

    square(x)                   ->  pow(x, 2)
    broadcast_tensors([x, y])   ->  x, expand(y, [2, 3])
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._guards import detect_fake_mode
from torch._ops import OpOverload
from torch._subclasses import FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.onnx._internal.exporter import _decomp, _fx_passes
from torch.onnx._internal.exporter._registration import ONNXRegistry
from torch.utils import _pytree as pytree

from sambac.frontend.torch.patching import replaced
from sambac.frontend.torch.shortcuts import has_known_type

from .names import renamed

_VIEWS = frozenset(
    {
        torch.ops.aten.view.default,
        torch.ops.aten.reshape.default,
        torch.ops.aten._unsafe_view.default,
    }
)

Table: TypeAlias = Mapping[Any, Callable[..., object]]
"""What operators are decomposed into."""

_IDLE = frozenset({torch.ops.aten._assert_tensor_metadata.default})
"""What the exporter leaves out."""


@dataclass(frozen=True)
class _TensorForm:
    """A tensor that an operator is given."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    trains: bool

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _TensorForm:
        kind = (tensor.dtype, tensor.device, tensor.requires_grad)
        return cls(tuple(tensor.shape), tensor.stride(), *kind)

    def made(self) -> torch.Tensor:
        """Return a tensor of this form, which is a fake one in a mode that makes these."""
        kind: dict[str, Any] = {"dtype": self.dtype, "device": self.device}
        made = torch.empty_strided(self.shape, self.strides, **kind)
        return made.requires_grad_(self.trains)


@dataclass(frozen=True)
class _Call:
    """A call of an operator: forms of tensors and values, flattened, and how they are nested.

    What is `spelled` tells equal values apart: 0, False, 0.0 and -0.0. Some operators make what is
    not of the `default` type that of it.
    """

    target: OpOverload
    leaves: tuple[Hashable, ...]
    nested: pytree.TreeSpec
    spelled: tuple[str, ...]
    default: torch.dtype

    @classmethod
    def of(cls, node: fx.Node) -> _Call:
        target = node.target
        assert isinstance(target, OpOverload)
        values, nested = pytree.tree_flatten((node.args, node.kwargs))
        leaves = tuple(
            _TensorForm.of(one.meta["val"]) if isinstance(one, fx.Node) else one for one in values
        )
        return cls(target, leaves, nested, tuple(map(repr, leaves)), torch.get_default_dtype())


class _Alone(torch.nn.Module):
    """A module that is one call of an operator, and takes the tensors of it."""

    def __init__(self, call: _Call) -> None:
        super().__init__()
        self._call = call

    def forward(self, *tensors: torch.Tensor) -> object:
        left = iter(tensors)
        leaves = [next(left) if isinstance(one, _TensorForm) else one for one in self._call.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self._call.nested)
        return self._call.target(*args, **kwargs)


@contextmanager
def decomposed_once() -> Iterator[None]:
    """Let the exporter record no program once more of which every operator and size is known."""
    decompose = _fx_passes.decompose_with_registry

    def decomposed(program: ExportedProgram, registry: ONNXRegistry) -> ExportedProgram:
        expanded = _expanded(program, registry)
        if all(_is_ready(node, registry) for node in expanded.graph.nodes):
            return expanded
        return decompose(expanded, registry)

    with replaced(_fx_passes, decompose.__name__, decomposed):
        yield


def _is_ready(node: fx.Node, registry: ONNXRegistry) -> bool:
    if node.target in _IDLE:
        return True
    if node.op == "call_function" and node.target is not operator.getitem:
        if not isinstance(node.target, OpOverload) or not registry.is_registered(node.target):
            return False
    elif node.op == "get_attr":
        return False
    return node.op == "output" or (
        has_known_type(node.meta.get("val")) and not _is_empty_view(node)
    )


def _is_empty_view(node: fx.Node) -> bool:
    """Tell whether a node gives 0 as a size, which means something else in ONNX."""
    return node.target in _VIEWS and 0 in node.meta["val"].shape


def _expanded(program: ExportedProgram, registry: ONNXRegistry) -> ExportedProgram:
    """Return `program` with what operators without a translation become, where that is known."""
    left = [node for node in program.graph.nodes if not _is_ready(node, registry)]
    registered = (
        frozenset(_decomp.get_onnx_implemented_overloads(registry)) if left else frozenset()
    )
    if not sum(_expand(node, registered) for node in left):
        return program
    module = program.graph_module
    module.recompile()
    return program._update(module, renamed(program.graph_signature, module.graph))


def _expand(node: fx.Node, registered: frozenset[Any]) -> bool:
    """Put what `node` becomes without a translation in its place; return whether that is known.

    It is for plain graphs of tensors whose sizes are known. `registered` are all operators with a
    translation.
    """
    recorded = _recorded(_Call.of(node), registered) if _can_expand(node) else None
    if recorded is not None:
        _put(node, recorded)
    return recorded is not None


def _can_expand(node: fx.Node) -> bool:
    target, value = node.target, node.meta.get("val")
    if not isinstance(target, OpOverload) or target.namespace != "aten":
        return False
    if target._schema.is_mutable or torch.Tag.nondeterministic_seeded in target.tags:
        return False
    given = pytree.tree_leaves((node.args, node.kwargs))
    read = [one.meta.get("val") for one in given if isinstance(one, fx.Node)]
    if not all(isinstance(one, torch.Tensor) for one in read):
        return False
    if not has_known_type([value, *read]) or not all(isinstance(one, Hashable) for one in given):
        return False
    single = isinstance(value, torch.Tensor)
    return single or all(user.target is operator.getitem for user in node.users)


@lru_cache(maxsize=512)
def _recorded(call: _Call, registered: frozenset[Any]) -> fx.Graph | None:
    """Return the graph of one call, or None if it has anything but its tensors as inputs."""
    with FakeTensorMode():
        tensors = tuple(one.made() for one in call.leaves if isinstance(one, _TensorForm))
        program = torch.export.export(_Alone(call), tensors, strict=False)
        program = program.run_decompositions(_table(registered))
    kinds = {spec.kind for spec in program.graph_signature.input_specs}
    if not kinds <= {InputKind.USER_INPUT} or program.graph.find_nodes(op="get_attr"):
        return None
    graph: fx.Graph = program.graph
    return graph


@lru_cache(maxsize=4)
def _table(registered: frozenset[Any]) -> Table:
    table: Table = _decomp.create_onnx_friendly_decomposition_table(set(registered))
    return table


def _put(node: fx.Node, recorded: fx.Graph) -> None:
    """Write `recorded`, the graph of such a call as `node`, in its place."""
    mode, graph = detect_fake_mode(node.meta["val"]), node.graph
    leaves = pytree.tree_leaves((node.args, node.kwargs))
    given = [one for one in leaves if isinstance(one, fx.Node)]
    stands = dict(zip(recorded.find_nodes(op="placeholder"), given, strict=True))
    with mode or nullcontext(), graph.inserting_before(node):
        for one in [one for one in recorded.nodes if one.op == "call_function"]:
            stands[one] = graph.node_copy(one, stands.__getitem__)
            value = pytree.tree_map_only(
                torch.Tensor, lambda tensor: _TensorForm.of(tensor).made(), one.meta["val"]
            )
            stands[one].meta = {**node.meta, "val": value}
    results: Any = recorded.output_node().args[0]
    if isinstance(node.meta["val"], torch.Tensor):
        node.replace_all_uses_with(stands[results[0]])
    for user in [*node.users]:
        user.replace_all_uses_with(stands[results[user.args[1]]])
        graph.erase_node(user)
    graph.erase_node(node)
