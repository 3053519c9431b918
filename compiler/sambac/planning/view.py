"""The dataflow view: what the planners know of a model, without its tensors, as networkx graphs.

`view_of` (in `sambac.planning.from_model`) builds it from an onnx_ir model. Planners and their
checkers see only this, so they can be tested on graphs that no model ever had.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import chain

import networkx as nx

from pef import dtypes
from pef.program import SectionType, Shape

from .dataflow import dataflow


class ValueRole(Enum):
    """Where a value comes from."""

    INPUT = "input"
    WEIGHT = "weight"
    ACTIVATION = "activation"


@dataclass(frozen=True, slots=True)
class ValueFacts:
    """A value of the graph. `nbytes` is None when its size is known only at run time.

    `dtype` is the ONNX element type, 0 for what is no tensor; `type` spells the type as
    onnxruntime does, for instance `tensor(float)` or `seq(tensor(int64))`.
    """

    name: str
    role: ValueRole
    dtype: int
    shape: Shape
    type: str
    nbytes: int | None

    @property
    def modelled_nbytes(self) -> int:
        """The bytes that estimates count: with 1 for every open dimension, 0 for no tensor."""
        if self.nbytes is not None or self.shape is None:
            return self.nbytes or 0
        sizes = [size if isinstance(size, int) else 1 for size in self.shape]
        return dtypes.static_nbytes(self.dtype, sizes) or 0


@dataclass(frozen=True, slots=True)
class OpFacts:
    """An operator (a node) of the graph.

    `inputs` are the values it reads in first-use order without repetition, what its subgraphs
    capture included; `outputs` the values it defines. Small constants are part of the operator
    and do not appear. `cloned` marks constants and shape-only operators: they are in no section
    of their own but copied into every section that reads them.
    `flops` are per execution, with 1 for every open dimension.
    `module` is the path of the module that the operator comes from, or an empty string.
    """

    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    flops: int = 0
    cloned: bool = False
    section_type: SectionType = SectionType.FWD
    module: str = ""


@dataclass(frozen=True)
class DataflowView:
    """A model as planners see it: operators in topological order, values, and the signature.

    `inputs` and `outputs` are value names in the model's order; an output may be an input or a
    weight, and may appear twice. Values with the role WEIGHT have content in the model.
    """

    ops: dict[str, OpFacts]
    values: dict[str, ValueFacts]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @cached_property
    def producer(self) -> dict[str, str]:
        """The operator that defines each value (inputs and weights have none)."""
        return {value: op.name for op in self.ops.values() for value in op.outputs}

    @cached_property
    def consumers(self) -> dict[str, list[str]]:
        """The operators that read each value, in topological order."""
        readers: dict[str, list[str]] = {}
        for op in self.ops.values():
            for value in op.inputs:
                readers.setdefault(value, []).append(op.name)
        return readers

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The bytes of each value, 0 where only a run can tell."""
        return {name: facts.nbytes or 0 for name, facts in self.values.items()}

    @cached_property
    def reads(self) -> dict[str, tuple[str, ...]]:
        """The values that each operator which is not cloned takes from outside itself.

        Instead of the value of a clone, those that its copy reads; in first-use order.
        """
        behind: dict[str, tuple[str, ...]] = {}  # what a value of a clone is made from
        reads: dict[str, tuple[str, ...]] = {}
        for op in self.ops.values():
            needed = tuple(
                dict.fromkeys(base for value in op.inputs for base in behind.get(value, (value,)))
            )
            if op.cloned:
                behind.update((value, needed) for value in op.outputs)
            else:
                reads[op.name] = needed
        return reads

    @cached_property
    def graph(self) -> nx.DiGraph[str]:
        """All operators, clones too, with what flows between them (see `dataflow`)."""
        reads = {name: op.inputs for name, op in self.ops.items()}
        return dataflow(reads, self.producer, self.sizes)

    @cached_property
    def placed(self) -> nx.DiGraph[str]:
        """The operators that have a place of their own; copies of clones are in their readers."""
        return dataflow(self.reads, self.producer, self.sizes)

    @cached_property
    def copies(self) -> nx.DiGraph[str]:
        """All operators, with an edge from each to the clones that it reads from."""
        copies: nx.DiGraph[str] = nx.DiGraph()
        copies.add_nodes_from(self.ops)
        copies.add_edges_from(
            (reader, maker) for maker, reader in self.graph.edges if self.ops[maker].cloned
        )
        nx.freeze(copies)
        return copies

    def with_clones(self, ops: Iterable[str]) -> frozenset[str]:
        """Return `ops` and every clone that they read, directly or through clones."""
        return frozenset(chain(*nx.bfs_layers(self.copies, list(ops))))
