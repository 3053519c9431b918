"""Collections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSet
from typing import TypeVar

__all__ = ["OrderedSet"]

_Item = TypeVar("_Item")


class OrderedSet(MutableSet[_Item]):
    """A set that iterates in the order in which its items came; it equals sets of equal items."""

    def __init__(self, items: Iterable[_Item] = ()) -> None:
        self._items = dict.fromkeys(items)

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[_Item]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, position: int) -> _Item:
        """Return the item at `position` in the order; raises IndexError beyond the last."""
        return list(self._items)[position]

    def __repr__(self) -> str:
        return f"OrderedSet({list(self._items)!r})"

    def add(self, value: _Item) -> None:
        """Put `value` at the end, unless it is in the set."""
        self._items.setdefault(value)

    def discard(self, value: _Item) -> None:
        """Take `value` out if it is there."""
        self._items.pop(value, None)

    def update(self, items: Iterable[_Item]) -> None:
        """Add all of `items`."""
        self._items.update(dict.fromkeys(items))

    def copy(self) -> OrderedSet[_Item]:
        """Return another set with the same items in the same order."""
        return OrderedSet(self._items)
