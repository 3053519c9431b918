"""What an application stores in a program, and what of samba's a program says, as its graphs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pef.foreign import producer_options
from pef.graphs import graph_of
from pef.program import GraphRole, NamedGraph, Program
from sambaflow.samba.errors import SambaError

API = "samba"
"""Whose names the aliases in a program are."""

APPLICATION = "application"
"""Where the producer's options hold what the application stored."""

SETTINGS = "settings"
"""Where that has the settings of modules: by graph, empty for the only one, path and name."""


def application_of(program: Program) -> dict[str, object]:
    """Return what the application stored in `program`."""
    found = producer_options(program.producer.options).get(APPLICATION)
    return found if isinstance(found, dict) else {}


def with_application(program: Program, facts: Mapping[str, object]) -> Program:
    """Return `program` that stores `facts` of the application."""
    options = {**producer_options(program.producer.options), APPLICATION: facts}
    text = json.dumps(options, sort_keys=True)
    return replace(program, producer=replace(program.producer, options=text))


def unused_inputs(program: Program) -> frozenset[str]:
    """Return the inputs of models that their program does not read."""
    found = application_of(program).get("unused_inputs")
    return frozenset(map(str, found)) if isinstance(found, list) else frozenset()


def plain(value: object) -> object:
    """Return `value` as JSON can hold it: lists for other sequences and sets, text for the rest."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, set | frozenset):
        return sorted(str(part) for part in value)
    if isinstance(value, Iterable):
        return [plain(part) for part in value]
    return _text(value)


def stored(metadata: Mapping[str, object]) -> dict[str, object]:
    """Return metadata as JSON holds it."""
    return {str(name): plain(value) for name, value in metadata.items()}


def _text(value: object) -> str:
    """Return a text for `value` that is the same in every process."""
    text = str(value)
    return type(value).__qualname__ if " at 0x" in text else text


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
