"""Draws whose comparison with a number has one answer, as of layers that are never left out.

    if torch.rand(1) > 0.0: ...            always
    if torch.rand([]) < self.rate: ...     never, where the rate is 0

Control flow that depends on values cannot be recorded; this does not. A draw lies in [0, 1). That
it is exactly 0 is taken for what does not happen. Nothing is known of draws that anything else than
a comparison has seen, nor of several at once, which decide nothing in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from sambac.frontend.torch.modules.tape import tensors_in

_DRAWS = (torch.rand, torch.rand_like)

_IS_BELOW = MappingProxyType(
    dict.fromkeys((torch.lt, torch.less, Tensor.lt, Tensor.less, Tensor.__lt__), True)
    | dict.fromkeys((torch.le, torch.less_equal, Tensor.le, Tensor.less_equal, Tensor.__le__), True)
    | dict.fromkeys((torch.gt, torch.greater, Tensor.gt, Tensor.greater, Tensor.__gt__), False)
    | dict.fromkeys((torch.ge, torch.greater_equal, Tensor.ge, Tensor.__ge__), False)
)
"""Comparisons of a draw with a number, and what is answered if the draw is below it."""


class CertainDraws(TorchFunctionMode):
    """Answers what comparisons of uniform draws with numbers outside of (0, 1) come to."""

    def __init__(self) -> None:
        super().__init__()
        self._draws: Any = WeakIdKeyDictionary()
        self._answers: Any = WeakIdKeyDictionary()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call an operator, or answer."""
        if is_dynamo_compiling():  # which records the bodies of loops and choices, and this too
            return func(*args, **(kwargs or {}))
        given = args[0] if args and isinstance(args[0], Tensor) else None
        if func in (Tensor.__bool__, Tensor.item) and given in self._answers:
            answer, version = self._answers[given]
            if version == args[0]._version:
                return answer
        if func not in _IS_BELOW and getattr(func, "__name__", "") != "__get__":
            self._forget((args, kwargs))
        result = func(*args, **(kwargs or {}))
        if func in _DRAWS or (func is Tensor.uniform_ and len(args) == 1 and not kwargs):
            self._draws[result] = result._version
        elif self._is_drawn(given) and func in _IS_BELOW:
            self._note(result, args[1:], below=_IS_BELOW[func])
        return result

    def _is_drawn(self, given: Tensor | None) -> bool:
        """Tell whether `given` holds what was drawn, to which nothing was written since."""
        if given is None or given not in self._draws:
            return False
        return bool(self._draws[given] == given._version)

    def _note(self, result: Tensor, limits: Sequence[object], *, below: bool) -> None:
        """Note what `result` holds, if it is certain: a draw beside the one of `limits`."""
        limit = limits[0] if len(limits) == 1 else None
        alone = all(type(size) is int and size == 1 for size in result.shape)
        if alone and isinstance(limit, (int, float)) and (limit <= 0 or limit >= 1):
            self._answers[result] = below == (limit >= 1), result._version

    def _forget(self, given: object) -> None:
        """Forget tensors that something else gets: it may write to them without saying so."""
        for tensor in tensors_in(given):
            self._draws.pop(tensor, None)
            self._answers.pop(tensor, None)
