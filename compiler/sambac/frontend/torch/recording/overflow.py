"""Questions whether all numbers are finite, which layers ask to clamp what overflows in float16.

    if not torch.isfinite(x).all():        x = x, as if they were
        x = torch.clamp(x, -m, m)

What depends on values cannot be recorded. Where numbers of a step are not finite, its loss and its
gradients are none either way, or the range of the type is what they hold.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from sambac.frontend.torch.errors import OWN

_ANSWERS = {torch.isfinite: True, Tensor.isfinite: True, torch.isinf: False, Tensor.isinf: False}
"""What asks it of each number, and what is answered."""

_OF_ALL = {True: (torch.all, Tensor.all), False: (torch.any, Tensor.any)}
"""What asks it of all of them."""


class FiniteNumbers(TorchFunctionMode):
    """Answers such questions of the module called `name`; `told` gets a sentence of each."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.told: list[str] = []
        self._each = WeakIdKeyDictionary()
        self._all = WeakIdKeyDictionary()

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
        given = args[0] if len(args) == 1 and not kwargs and isinstance(args[0], Tensor) else None
        if func is Tensor.__bool__ and given in self._all:
            self.told.append(
                f"{self.name} asks whether all numbers are finite{_place()}; it is compiled as if "
                "they were"
            )
            return self._all[given]
        result = func(*args, **(kwargs or {}))
        if func in _ANSWERS:
            self._each[result] = _ANSWERS[func]
        elif given in self._each and func in _OF_ALL[self._each[given]]:
            self._all[result] = self._each[given]
        return result


def _place() -> str:
    """Return where the module's code is."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(OWN):
        frame = frame.f_back
    return f" at {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
