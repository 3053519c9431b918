"""What would have happened if the passes that a compilation passes over had run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import onnx_ir as ir

from sambac.errors import CompileError
from sambac.passes.base import Pass
from sambac.passes.runner import Contents


def wrongly_passed_over(model: ir.Model, passes: Sequence[Pass]) -> Iterator[str]:
    """Yield passes that change or refuse `model`, though it has nothing that concerns them.

    They are run in order, in place; a pass that rightly refuses the model is the last. Of
    neighbours that say that they have changed nothing, and have, all are named.
    """

    def concerned_by(step: Pass) -> bool:
        return Contents(model).concern(step)

    for concerned, group in groupby(passes, concerned_by):
        before = None if concerned else _content(model)
        run: list[str] = []
        try:
            modified = [step.name for step in _noted(group, run) if step(model).modified]
        except CompileError:
            yield from () if concerned else run[-1:]
            return
        if before is not None and (modified or before != _content(model)):
            yield from modified or run


def unsaid_changes(model: ir.Model, step: Pass) -> bool:
    """Tell whether `step` changes `model`, in place, and says that it has not."""
    before = _content(model)
    try:
        return not step(model).modified and before != _content(model)
    except CompileError:
        return False


def _noted(steps: Iterable[Pass], names: list[str]) -> Iterator[Pass]:
    for step in steps:
        names.append(step.name)
        yield step


def _content(model: ir.Model) -> bytes:
    content: bytes = ir.to_proto(model).SerializeToString(deterministic=True)
    return content
