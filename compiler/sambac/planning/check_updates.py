"""Checks that updates in place never destroy what somebody still reads.

An update writes a new value over the memory of an old one. That is safe if every other operator
that reads the old value has run by then: in an earlier section, or in the same one as an ancestor
of the writer, because within a section only the flow of data orders operators. The writer itself
may read the old value only element by element, into a result of the same shape.

The flat value over a pack has no versions of its own: who reads it means what its members hold by
then, so it may be read after an update of one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import networkx as nx

from sambac.ops import is_elementwise

from .plans import LiveSets, PersistentBuffers
from .view import DataflowView


def check_updates(
    view: DataflowView, calls: Sequence[LiveSets], persistent: PersistentBuffers
) -> list[str]:
    """Return the unsafe updates of one graph, a sentence each.

    `calls` are its sections in the order of the schedule. Graphs run apart, so that operators of
    `view` in no section of `calls` are of no concern.
    """
    spanned = {name: pack.name for pack in persistent.packs for name, _ in pack.members}
    problems: list[str] = []
    call_of = {op: number for number, sets in enumerate(calls) for op in sets.ops}
    for new in persistent.updates:
        writer = view.producer.get(new)
        if writer not in call_of or not view.ops[writer].inputs:
            continue  # what depends on nothing resets the memory, for later readers to see
        symbol = persistent.symbol(new)
        family = {symbol, spanned.get(symbol, symbol)}
        family.update(name for name, pack in spanned.items() if pack == symbol)
        for old in _versions(view, persistent, family, new):
            flat = persistent.symbol(old) == spanned.get(symbol)
            problems += _conflicts(view, (old, new, writer), call_of, may_follow=flat)
    return problems


def _versions(
    view: DataflowView, persistent: PersistentBuffers, family: set[str], new: str
) -> Iterator[str]:
    """Yield the values that lie in the memory that `new` overwrites, but for later updates."""
    later = {
        value for value, target in persistent.updates.items() if _follows(persistent, value, new)
    }
    for value in view.values:
        if value != new and value not in later and persistent.symbol(value) in family:
            yield value


def _follows(persistent: PersistentBuffers, value: str, earlier: str) -> bool:
    """Tell whether `value` overwrites `earlier`, directly or not."""
    while value in persistent.updates:
        value = persistent.updates[value]
        if value == earlier:
            return True
    return False


def _conflicts(
    view: DataflowView,
    update: tuple[str, str, str],
    call_of: dict[str, int],
    *,
    may_follow: bool,
) -> Iterator[str]:
    """Yield who reads an old value too late; in a later section that is nobody if `may_follow`."""
    old, new, writer = update
    for reader in view.consumers.get(old, ()):
        when = [call_of[reader]] if reader in call_of else []
        at = call_of[writer]
        if reader == writer:
            if not _same_place(view, writer, old, new):
                yield f"'{writer}' overwrites '{old}', which it does not read element by element"
        elif any(call > at for call in when) and not may_follow and not view.ops[reader].cloned:
            yield f"'{reader}' reads '{old}' after '{writer}' has overwritten it"
        elif at in when and not nx.has_path(view.graph, reader, writer):
            yield f"'{reader}' may read '{old}' after '{writer}' has overwritten it"


def _same_place(view: DataflowView, writer: str, old: str, new: str) -> bool:
    op = view.ops[writer]
    return is_elementwise(op.domain, op.op_type) and (
        view.values[old].shape == view.values[new].shape
    )
