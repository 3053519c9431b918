"""From a graph with seeds to one with gradients: expand, refuse what has none, walk back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from pef.wording import listed
from sambac.errors import CompileError

from .expansion import expand_bodies
from .walker import obstacles, walk_back

_MOST_LISTED = 20


def differentiate(
    model: ir.Model, seeds: Mapping[ir.Value, ir.Value], trained: Sequence[ir.Value]
) -> dict[ir.Value, ir.Value]:
    """Append the gradients of `trained` to the main graph; return them by trained value.

    `seeds` maps each differentiated output to its gradient, a value of the same type and shape.
    A trained value that no seeded output depends on is absent from the result. Operators without
    a rule are replaced by their bodies, so a seeded output may end up as another value of the
    same name. All types and shapes must be known.

    Raises `CompileError` for operators between them that have no gradient, all of them at once.
    """
    current = expand_bodies(model, seeds, trained)
    expanded = {current[target]: seed for target, seed in seeds.items()}
    found = obstacles(model, expanded, trained)
    if found:
        raise CompileError(
            f"no gradient flows through {listed(found, _MOST_LISTED)}; "
            "freeze the parameters before them, or rewrite the model without them"
        )
    return walk_back(model, expanded, trained)
