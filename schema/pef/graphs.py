"""Which graphs of a program belong to one model: inference, or a training step and its evaluation.

a model alone     main; or train, eval
several models    encode, decode; a model `fit` that trains has the graphs fit/train, fit/eval
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Literal, NamedTuple

from .program import Program
from .states import EVAL_GRAPH, MAIN_GRAPH, SEVERAL_MODELS, TRAIN_GRAPH, TRAINING

Kind = Literal["main", "train", "eval"]

_KINDS: dict[str, Kind] = {TRAIN_GRAPH: "train", EVAL_GRAPH: "eval"}
_MARK = "/"


class Role(NamedTuple):
    """What a graph is: the `model` it is of, empty if that trains alone, and its `kind`.

    `main` is inference, `train` a training step, `eval` the evaluation beside it.
    """

    model: str
    kind: Kind


def graph_roles(program: Program) -> tuple[Role, ...]:
    """Return the roles of the graphs of `program`, in its order."""
    return roles([graph.name for graph in program.graphs], program.requires.features)


def roles(names: Iterable[str], features: Container[str]) -> tuple[Role, ...]:
    """Return the roles of graphs by their names, in a program that requires `features`."""
    if TRAINING not in features:
        return tuple(Role(name, "main") for name in names)
    if SEVERAL_MODELS in features:
        return tuple(map(_role, names))
    return tuple(Role("", _KINDS[name]) if name in _KINDS else Role(name, "main") for name in names)


def callers(names: Sequence[str], features: Container[str]) -> tuple[tuple[str, ...], ...]:
    """Return how each graph is called in front of its inputs and outputs: its name, or its model's.

    >>> callers(["fit/train", "serve"], ["training", "several_models"])
    (('fit/train', 'fit'), ('serve',))
    """
    return tuple(
        tuple(dict.fromkeys(filter(None, (name, role.model))))
        for name, role in zip(names, roles(names, features), strict=True)
    )


def name_among(model: str, graph: str) -> str:
    """Return what a graph of a model alone is called in a program of several, one called `model`.

    A model alone has no name. Raises `ValueError` for one whose name reads like that of such a
    graph.
    """
    if not model:
        return graph
    if _role(model).kind != "main":
        raise ValueError(f"'{model}' reads like a graph of a model that trains")
    return model if graph == MAIN_GRAPH else f"{model}{_MARK}{graph}"


def graph_of(found: Sequence[Role], model: str, kind: Kind) -> int | None:
    """Return the position of a role in `found`, None if it is not there."""
    return next((at for at, role in enumerate(found) if role == (model, kind)), None)


def trained_model(found: Iterable[Role]) -> str | None:
    """Return the first model that trains, None if none does."""
    return next((role.model for role in found if role.kind == "train"), None)


def _role(name: str) -> Role:
    model, mark, kind = name.rpartition(_MARK)
    return Role(model, _KINDS[kind]) if mark and kind in _KINDS else Role(name, "main")
