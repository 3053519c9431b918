"""Gradients that a model brings itself: what computes them is copied behind its incoming gradients.

y' = OwnGradient(y, d, x, dx)  ->  gradient of x: dx, computed anew with the gradient of y'
                                   in the place of d
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

import onnx_ir as ir

from sambac.errors import CompileError, InternalError
from sambac.graph.editor import Editor
from sambac.graph.nodes import copy_node, graph_of, has_subgraphs, reads
from sambac.graph.origins import place_of
from sambac.graph.own_gradients import DOMAIN, INCOMING, OWN, OwnGradient

from .family import Family, InputGradient, each, nothing, qualified


def _own_gradient(
    b: Editor, node: ir.Node, incoming: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """Copy what is between the incoming gradients and those of the sources.

    A result without a gradient has one of zeros. Raises `CompileError` for control flow on the way.
    """
    parts = OwnGradient.of(node)
    if not all(map(_is_incoming, parts.incoming)):
        raise InternalError(f"'{node.name}' has gradients that are not incoming ones")

    @cache
    def copied() -> dict[ir.Value, ir.Value]:
        given = (
            b.zeros(result) if gradient is None else gradient
            for result, gradient in zip(parts.results, incoming, strict=True)
        )
        copies = dict(zip(parts.incoming, given, strict=True))
        for one in _between(node, parts):
            if has_subgraphs(one):
                raise CompileError(
                    f"the backward method{place_of(node)} has control flow ({one.op_type}), which "
                    "cannot be recorded there; choose with torch.where, and write loops out"
                )
            stem = f"{b.scope}{one.op_type}"
            name = partial(_named, b, stem)
            b.put(copy_node(one, copies, b.names.node(stem), name))
        return copies

    def gradient(dx: ir.Value) -> ir.Value:
        return copied().get(dx, dx)

    none = [None] * (len(parts.results) + len(parts.incoming))
    return [*none, *(partial(gradient, dx) for dx in parts.gradients)]


def _named(b: Editor, stem: str, _: ir.Value) -> str:
    return b.names.value(stem)


def _is_incoming(value: ir.Value) -> bool:
    made = value.producer()
    return made is not None and (made.domain, made.op_type) == (DOMAIN, INCOMING)


def _between(node: ir.Node, parts: OwnGradient) -> list[ir.Node]:
    """Return what `parts.gradients` depend on that depends on `parts.incoming`, in its order."""
    reached, found = set(parts.incoming), []
    for one in graph_of(node):
        if one is node:
            break
        if any(value in reached for value in reads(one)):
            reached.update(one.outputs)
            found.append(one)
    wanted, needed = set(parts.gradients), []
    for one in reversed(found):
        if any(value in wanted for value in one.outputs):
            needed.append(one)
            wanted.update(reads(one))
    return needed[::-1]


FAMILY = Family(
    "own gradients",
    each((INCOMING, OWN), nothing, DOMAIN),
    gradients={qualified(DOMAIN, OWN): _own_gradient},
    constant=frozenset({qualified(DOMAIN, INCOMING)}),
)
