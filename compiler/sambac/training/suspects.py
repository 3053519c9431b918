"""Weights of an ONNX file that are constants, by all that can be told: they normalise inputs.

    (x - mean) / deviation

An initializer is an initializer, whether a step of training is to change it or not.
"""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

from pef.wording import listed
from sambac.facts import Roles
from sambac.graph.origins import role_of

_SHIFTS = frozenset({"Add", "Div", "Mul", "Sub"})


def told_of_constants(model: ir.Model, roles: Roles) -> tuple[str, ...]:
    """Return a warning of parameters of `roles` that do no more than shift or scale inputs.

    There is none where nothing else is trained, or where the exporter says what is a parameter.
    """
    trained = {
        value
        for name, value in model.graph.initializers.items()
        if name in roles.parameters and name not in roles.frozen
    }
    found = [
        f"'{value.name}'"
        for value, times in _on_inputs(model.graph, trained).items()
        if role_of(value) == "" and times == len(value.uses())
    ]
    if not found or len(found) == len(trained):
        return ()
    told = "all that they do is to shift or scale inputs, as constants of a normalisation do"
    names = listed(found, 8, ", ")
    return (f"{names} will be trained, but {told}; --freeze NAME keeps one as it is",)


def _on_inputs(graph: ir.Graph, trained: set[ir.Value]) -> Counter[ir.Value]:
    """Return how often what is trained is applied to inputs that nothing else has touched."""
    found: Counter[ir.Value] = Counter()
    plain = {*graph.inputs, *graph.initializers.values()} - trained
    for node in graph:
        read = {value for value in node.inputs if value is not None}
        weights = read & trained if node.op_type in _SHIFTS and node.domain == "" else set()
        if read - weights <= plain and read != weights:
            found.update(weights)
            plain.update(node.outputs)
    return found
