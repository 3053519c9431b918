"""Which graphs a program has, and what samba calls their inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pef.graphs import graph_of
from pef.program import GraphRole, NamedGraph, Program
from sambaflow.samba.errors import SambaError

from .application import application_of


class GraphSignature(NamedTuple):
    """A graph in a program: its inputs and outputs, ports by samba's names, and if it trains."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    trains: bool


def graphs_of(program: Program) -> dict[str, GraphSignature]:
    """Return the graphs of a program by name; there are none in a program of one model."""
    found = application_of(program).get("graphs")
    if not isinstance(found, dict):
        return {}
    signatures = {
        name: GraphSignature(graph["inputs"], graph["outputs"], bool(graph.get("trains")))
        for name, graph in found.items()
    }
    # JSON has them in the order of their names.
    return dict(sorted(signatures.items(), key=lambda i: compiled_graph(program, i[0]).first_call))


def compiled_graph(program: Program, name: str) -> NamedGraph:
    """Return the graph `name` of a program; of a model that trains its training step.

    Raises `SambaError` for a program that has none of that model.
    """
    roles = (GraphRole.TRAIN, GraphRole.INFERENCE)
    places = (graph_of(program.graphs, name, role) for role in roles)
    found = next((place for place in places if place is not None), None)
    if found is None:
        raise SambaError(
            f"the PEF has no graph of the model '{name}', which it lists; compile again"
        )
    return program.graphs[found]
