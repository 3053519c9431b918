"""Lazy parameters: modules built without values, which are made when somebody needs them.

    with lazy_param():
        model = Model()             # parameters know their shapes, types and initial distributions
    with materialize(model):
        ...                         # here they have values, equal ones for equal seeds

What a module's constructor makes with torch.empty, torch.randn and their like, and whatever is
done to it from then on, is recorded; `torch.nn.init` and everything built on it included. A
parameter made in another way, such as torch.Tensor(3, 4) or from a numpy array, has values as ever.
Buffers always have.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch import Tensor

from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.lazy.histories import Recipe
from sambaflow.samba.lazy.recording import recording
from sambaflow.samba.lazy.rng import (
    MultithreadedRNG,
    RandomOptions,
    RNGProvider,
    RNGProviderFactory,
    configure,
    provider,
)
from sambaflow.samba.tensors.tensor import SambaParameter

__all__ = [
    "MultithreadedRNG",
    "RNGProvider",
    "RNGProviderFactory",
    "disable_lazy_param",
    "enable_lazy_param",
    "lazy_param",
    "paused",
    "reset_random_generator",
    "use_lazy_param",
]


class _Mode:
    """What ends the recording that is on; modes of torch too are one stack for a thread."""

    stack: ExitStack | None = None


@contextmanager
def lazy_param() -> Iterator[None]:
    """Build modules without values within the block."""
    if use_lazy_param():
        yield
        return
    _open()
    try:
        yield
    finally:
        disable_lazy_param()


@checked()
def enable_lazy_param(
    seed: int | None = None,
    init_threads: int = 8,
    inverse_transform_sampling: bool = False,
    fp32_to_bf16_rounding: str = "nearest_even",
) -> None:
    """Build modules without values from now on.

    Values come from `seed`, or torch's seed if it is None, by `init_threads` threads, and do not
    depend on their number. `inverse_transform_sampling` draws normal numbers by the inverse of
    their distribution. `fp32_to_bf16_rounding` is `nearest_even` or `truncation`. Raises ValueError
    for options out of range.
    """
    configure(RandomOptions(seed, init_threads, inverse_transform_sampling, fp32_to_bf16_rounding))
    if not use_lazy_param():
        _open()


def disable_lazy_param() -> None:
    """Build modules with values from now on; those without stay so until they are needed."""
    stack, _Mode.stack = _Mode.stack, None
    if stack is not None:
        stack.close()


def use_lazy_param() -> bool:
    """Return whether modules are built without values now."""
    return _Mode.stack is not None


def reset_random_generator() -> None:
    """Let what is built next get the values that the first module built got.

    The seed of dropout is a hyperparameter: `get_dropout_seed_argin_names` has its names.
    """
    provider().reset()


@contextmanager
def paused() -> Iterator[None]:
    """Compute as ever within the block: for what must not meet a mode of torch, as tracing."""
    was_on = use_lazy_param()
    disable_lazy_param()
    try:
        yield
    finally:
        if was_on:
            _open()


def _open() -> None:
    stack = ExitStack()
    stack.enter_context(recording(RNGProviderFactory(), _stand_in))
    _Mode.stack = stack


def _stand_in(value: Tensor, recipe: Recipe) -> SambaParameter:
    """Return a parameter without values like `value`, which `recipe` gives them."""
    return SambaParameter(
        shape=value.shape,
        dtype=value.dtype,
        requires_grad=value.requires_grad,
        materializer=recipe,
    )
