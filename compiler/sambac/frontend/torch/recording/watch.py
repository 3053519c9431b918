"""What code writes that was there before it ran."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree


class Watch(TorchFunctionMode):
    """Sees the tensors that operators read and make meanwhile; more than one time, if need be."""

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[int, tuple[Tensor, int]] = {}
        self._made: dict[int, Tensor] = {}  # alive, so that no other has their identity

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call an operator."""
        for one in tensors((args, kwargs)):
            if id(one) not in self._made:
                self._before.setdefault(id(one), (one, one._version))
        result = func(*args, **(kwargs or {}))
        for one in tensors(result):
            if id(one) not in self._before:
                self._made[id(one)] = one
        return result

    def note(self, value: object) -> None:
        """Take the tensors in `value` for some that were there before."""
        for one in tensors(value):
            self._made.pop(id(one), None)
            self._before[id(one)] = one, one._version

    def begin(self) -> None:
        """Forget what was written so far."""
        self._before = {at: (one, one._version) for at, (one, _) in self._before.items()}

    def written(self) -> list[Tensor]:
        """Return what was there before, and has been written since."""
        return [one for one, version in self._before.values() if one._version != version]


def tensors(value: object) -> list[Tensor]:
    """Return the tensors in `value`."""
    return [one for one in pytree.tree_leaves(value) if isinstance(one, Tensor)]
