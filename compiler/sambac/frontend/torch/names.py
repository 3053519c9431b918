"""Public names: what `forward` calls its arguments, and the keys of what it returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch.utils import _pytree as pytree

_RESULT = "output"
"""The name of the only result, and how those of a tuple begin."""


def result_names(structure: pytree.TreeSpec) -> tuple[str, ...]:
    """Return a name for each leaf of what a module returns.

    The keys of a dict, the fields of a dataclass or of a named tuple are names; elements of tuples
    and lists are numbered: `logits`, `past_0_1`; `output_0` in a tuple; `output` alone.
    """
    return tuple(
        "_".join(path) if path and not path[0].isdigit() else "_".join((_RESULT, *path))
        for path in _paths(structure)
    )


def _paths(structure: pytree.TreeSpec) -> Iterator[tuple[str, ...]]:
    if structure.is_leaf():
        yield ()
        return
    for label, child in zip(_labels(structure), structure.children(), strict=True):
        for path in _paths(child):
            yield (label, *path)


def _labels(structure: pytree.TreeSpec) -> Sequence[str]:
    """Return what the children of a node are called; the contexts are those of torch's pytrees."""
    context, count = structure.context, structure.num_children
    if hasattr(context, "_fields"):
        return tuple(context._fields)
    # Mappings keep their keys, registered dataclasses a pair of the fields with and without value.
    first = context[0] if isinstance(context, (list, tuple)) and context else None
    for names in (context, first):
        if isinstance(names, (list, tuple)) and [type(name) for name in names] == [str] * count:
            return tuple(names)
    return tuple(str(index) for index in range(count))
