"""Regions without gradients, or of another precision, that hold loops or choices.

    with torch.no_grad():
        y = scan(step, start, x)

torch.export knows a region by its first node. Where a region holds the body of a loop, that body
comes first, and the region would be forgotten: gradients would flow through it. What is outside of
regions it puts back into one graph, and would throw away the bodies that regions hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from torch import fx
from torch._export.passes import replace_autocast_with_hop_pass, replace_set_grad_with_hop_pass
from torch._export.utils import node_inline_

from sambac.frontend.torch.patching import replaced, replaced_here


@contextmanager
def regions_of_bodies() -> Iterator[None]:
    """Let torch.export keep, for this thread, regions that hold bodies."""
    with (
        replaced_here(replace_set_grad_with_hop_pass, "nodes_first", _first_operator),
        replaced_here(replace_set_grad_with_hop_pass, "node_inline_", _put_back),
        replaced_here(replace_autocast_with_hop_pass, "nodes_first", _first_operator),
        replaced_here(replace_autocast_with_hop_pass, "node_inline_", _put_back),
    ):
        yield


def _first_operator(
    nodes: Iterable[fx.Node], is_meant: Callable[[fx.Node], bool]
) -> fx.Node | None:
    """Return the first of `nodes` that is meant and is no body, or nothing."""
    return next((node for node in nodes if node.op != "get_attr" and is_meant(node)), None)


def _put_back(node: fx.Node) -> fx.GraphModule | None:
    """Replace the call of a submodule by its operators; other submodules keep what they have."""
    module = node.graph.owning_module
    assert module is not None
    with replaced(module, "delete_all_unused_submodules", _nothing):
        found = node_inline_(node)
    module.delete_submodule(str(node.target))
    return found


def _nothing() -> None:
    """Delete nothing."""
