"""Dropouts whose rate is zero when a module is exported: the exporter leaves them out."""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx
from torch.export import ExportedProgram

from pef.wording import listed

_SHOWN = 10


def told_of(program: ExportedProgram) -> tuple[str, ...]:
    """Return a sentence if `program` has dropouts of rate 0 that would drop, else nothing.

    A mask costs a step memory and time, which nobody who turns dropout off wants to pay for.
    """
    found = [*dict.fromkeys(_idle(program))]
    if not found:
        return ()
    sentence = (
        f"The dropout of {listed(found, _SHOWN, ', ')} has the rate 0 and is left out: no run can "
        f"set its rate. Compile with a rate above 0 to do so."
    )
    return (sentence,)


def _idle(program: ExportedProgram) -> Iterator[str]:
    """Yield where dropouts are that drop nothing: the path of the module, or the node."""
    for part in program.graph_module.modules():
        for node in part.graph.nodes if isinstance(part, fx.GraphModule) else ():
            schema = getattr(node.target, "_schema", None)
            if node.op != "call_function" or schema is None:
                continue
            names = [argument.name for argument in schema.arguments]
            given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
            if given.get("p") == 0 and given.get("train") is True:
                yield _place(node)


def _place(node: fx.Node) -> str:
    """Return the path of the innermost module that `node` is in, its own name outside of all."""
    stack = node.meta.get("nn_module_stack")
    path = [*stack.values()][-1][0] if stack else ""
    return path or node.name
