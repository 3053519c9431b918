"""Which graphs of a program belong to one model: inference, or a training step and its evaluation.

Their `model` and `role` say it; how a graph is called is for people:

a model alone     main; or train, eval
several models    encode, decode; a model `fit` that trains has the graphs fit/train, fit/eval
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .program import GraphRole, NamedGraph


def callers(name: str, model: str) -> tuple[str, ...]:
    """Return how a graph is called in front of its inputs and outputs: its name, or its model's.

    >>> callers("fit/train", "fit"), callers("train", "")
    (('fit/train', 'fit'), ('train',))
    """
    return tuple(dict.fromkeys(filter(None, (name, model))))


def graph_of(graphs: Sequence[NamedGraph], model: str, role: GraphRole) -> int | None:
    """Return the position of the graph of `model` in that role, None if there is none."""
    return next(
        (at for at, graph in enumerate(graphs) if (graph.model, graph.role) == (model, role)), None
    )


def trained_models(graphs: Iterable[NamedGraph]) -> tuple[str, ...]:
    """Return the models that train, in the order of their training steps."""
    return tuple(graph.model for graph in graphs if graph.role is GraphRole.TRAIN)
