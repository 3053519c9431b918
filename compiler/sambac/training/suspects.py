"""Weights of an ONNX file that had better not be trained as they are, by all that can be told.

    (x - mean) / deviation    constants that normalise inputs
    table[i], x @ table.T     one weight as two, of which exporters have computed one

An initializer is an initializer, whether a step of training is to change it or not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from pef.wording import listed
from sambac.facts import Roles
from sambac.graph.origins import role_of

_SHIFTS = frozenset({"Add", "Div", "Mul", "Sub"})


def told_of_suspects(model: ir.Model, roles: Roles) -> tuple[str, ...]:
    """Return warnings of parameters of `roles` that may not be meant to be trained, or not so."""
    trained = {
        value
        for name, value in model.graph.initializers.items()
        if name in roles.parameters and name not in roles.frozen
    }
    return (*_told_of_constants(model, trained), *_told_of_copies(trained))


def _told_of_copies(trained: set[ir.Value]) -> Iterator[str]:
    """Yield a warning for each matrix that is another one turned: what was one would be two."""
    alike = defaultdict(list)
    for value in sorted(trained, key=lambda value: str(value.name)):
        if value.const_value is not None and len(value.const_value.shape) == 2:
            alike[tuple(sorted(value.const_value.shape.numpy()))].append(value)
    for values in alike.values():
        arrays = [_content(value) for value in values]
        for index, one in enumerate(arrays):
            for other in range(index):
                if _is_turned(one, arrays[other]):
                    yield (
                        f"'{values[other].name}' and '{values[index].name}' are the same numbers, "
                        "turned, and will be trained apart; if they are one weight of the model, "
                        "export it without folding of constants, or compile the module itself"
                    )


def _content(value: ir.Value) -> np.ndarray:
    assert value.const_value is not None
    return value.const_value.numpy()


def _is_turned(one: np.ndarray, other: np.ndarray) -> bool:
    """Tell whether a matrix is another one turned, and not as it is by what it is filled with."""
    if one.shape != other.shape[::-1] or one.dtype != other.dtype or one.size < 2:
        return False
    first = one[0, 0] == other[0, 0] and one[-1, -1] == other[-1, -1]  # mostly it ends here
    if not first or not np.array_equal(one, other.T):
        return False
    return bool((one != one[0, 0]).any()) and not np.array_equal(one, other)


def _told_of_constants(model: ir.Model, trained: set[ir.Value]) -> tuple[str, ...]:
    """Return a warning of what does no more than shift or scale inputs.

    There is none where nothing else is trained, or where the exporter says what is a parameter.
    """
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
