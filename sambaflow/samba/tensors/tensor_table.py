"""Tensors by name, as applications find them in a session."""

from __future__ import annotations

from collections.abc import ValuesView

from .tensor import SambaTensor


class _Values(ValuesView[SambaTensor]):
    """The tensors of a table, in order; unlike those of a dict they have positions."""

    def __getitem__(self, position: int) -> SambaTensor:
        """Return the tensor at `position`; raises IndexError beyond the last."""
        tensors: list[SambaTensor] = list(self)
        return tensors[position]


class TensorTable(dict[str, SambaTensor]):
    """A dict of tensors by name. Its values may be indexed, and are what a call of it returns.

    Versions of SambaFlow differ in whether such a table is an attribute or a method.
    """

    def values(self) -> _Values:  # type: ignore[override]  # dict_values of the C code has no index
        """Return the tensors in order, by position too."""
        return _Values(self)

    def __call__(self) -> _Values:
        """Return the tensors, as `values` does."""
        return self.values()
