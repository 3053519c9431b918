"""What other versions change in torch, and this one need not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import torch


@contextmanager
def patched_torch() -> Iterator[ModuleType]:
    """Give torch for a block: SambaTensors are tensors of torch, so nothing in it is replaced."""
    yield torch
