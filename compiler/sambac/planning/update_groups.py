"""Which operators of an optimizer belong to the update of one parameter.

Operators belong together if a tensor flows between them or if both read one. What is computed from
scalars alone (a learning rate, a bias correction) serves all parameters and belongs to none.
"""

from __future__ import annotations

import networkx as nx
import numpy as np

from pef import dtypes
from pef.program import SectionType

from .view import DataflowView

# Hyperparameters are float64 scalars, step counters int64 scalars.
_SCALARS = frozenset(
    {dtypes.from_numpy(np.dtype(np.float64)), dtypes.from_numpy(np.dtype(np.int64))}
)


def update_groups(view: DataflowView) -> list[tuple[str, ...]]:
    """Return the groups of operators, in the order of `view`, that each update one parameter."""
    reads = {
        name: values
        for name, values in view.reads.items()
        if view.ops[name].section_type is SectionType.OPT
    }
    shared = _shared(view, reads)
    graph: nx.Graph[str] = nx.Graph()
    for name, values in reads.items():
        for value in (*values, *view.ops[name].outputs):
            if value not in shared:
                graph.add_edge(f"op {name}", f"value {value}")
    position = {f"op {name}": at for at, name in enumerate(reads)}
    names = list(reads)
    groups = []
    for component in nx.connected_components(graph):
        members = sorted(position[node] for node in component if node in position)
        groups.append(tuple(names[at] for at in members))
    return sorted(groups, key=lambda group: position[f"op {group[0]}"])


def _shared(view: DataflowView, reads: dict[str, tuple[str, ...]]) -> set[str]:
    """Return the values that follow from scalars alone, those included."""
    shared = {
        name
        for name in view.inputs
        if view.values[name].shape == () and view.values[name].dtype in _SCALARS
    }
    for name, values in reads.items():
        if shared.issuperset(values):
            shared.update(view.ops[name].outputs)
    return shared
