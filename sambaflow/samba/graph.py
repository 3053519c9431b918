"""The graphs of a PEF that has several: `SambaGraph`, and `FwdGraph` for a forward pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from torch import Tensor
from torch.utils import _pytree as pytree

from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.tensors.tensor import SambaTensor

from .errors import SambaError

Tensors: TypeAlias = "Tensor | Iterable[object] | Mapping[str, object]"

__all__ = ["FwdGraph", "SambaGraph"]


class SambaGraph:
    """A part of what was traced, from the tensors `start` to the tensors `stop`.

    `name` is what `session.run` calls it. `start` and `stop` may be one tensor or several, nested
    and with None among them, as a model takes and returns them. Raises `SambaError` without a name
    or without a tensor to stop at.
    """

    @checked(start=None, stop=None)
    def __init__(self, start: Tensors, stop: Tensors, name: str = "") -> None:
        self.start = _flat(start)
        self.stop = _flat(stop)
        self.name = name
        if not name:
            raise SambaError(
                "a graph has no name; give it one, FwdGraph(inputs, outputs, name=...)"
            )
        if not self.stop:
            raise SambaError(
                f"graph '{name}' stops at no tensor; give it what trace_multigraph returned"
            )

    def __repr__(self) -> str:
        """Return the graph with the names of its tensors."""
        start, stop = ([tensor.sn_name for tensor in ends] for ends in (self.start, self.stop))
        return f"{type(self).__name__}({start} -> {stop}, name={self.name!r})"


class FwdGraph(SambaGraph):
    """The forward pass of a traced model: from its inputs to its outputs."""


def _flat(tensors: Tensors) -> tuple[SambaTensor, ...]:
    """Return the SambaTensors in `tensors`; others become ones, and what is none is left out.

    Raises `SambaError` where something is given, and there is no tensor in it.
    """
    leaves = [leaf for leaf in pytree.tree_leaves(tensors) if leaf is not None]
    found = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    if leaves and not found:
        raise SambaError(
            f"a graph goes from tensors to tensors, and was given a {type(leaves[0]).__name__}"
        )
    return tuple(leaf if isinstance(leaf, SambaTensor) else SambaTensor(leaf) for leaf in found)
