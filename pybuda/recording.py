"""What is recorded for the device now: what stands for parameters, and where operators go."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeAlias

import torch

Evaluation: TypeAlias = Callable[[], torch.Tensor]


def snake(name: str) -> str:
    """Return a type of operators as the original spells it: `reduce_sum` for `ReduceSum`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


@dataclass(frozen=True)
class Recording:
    """A module while it is recorded.

    `parameters` are what stands for parameters, by their ids. `training` tells whether dropouts
    drop. `applied` returns what an operator of a kind gives, recorded under its name, which may be
    empty.
    """

    parameters: Mapping[int, torch.Tensor]
    training: bool
    applied: Callable[[str, str, Evaluation], torch.Tensor]


_NOTHING = Recording({}, training=True, applied=lambda kind, name, evaluate: evaluate())
_current: ContextVar[Recording | None] = ContextVar("recording", default=None)


def recording() -> Recording:
    """Return what is recorded now; operators on tensors of the program are just evaluated."""
    return _current.get() or _NOTHING


@contextmanager
def recorded_in(found: Recording) -> Iterator[None]:
    """Let `found` be what is recorded for a while."""
    token = _current.set(found)
    try:
        yield
    finally:
        _current.reset(token)
