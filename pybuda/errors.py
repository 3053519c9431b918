"""What this API raises, and what it says of names of the original that are not there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from pef.arguments import shown
from pef.wording import did_you_mean
from sambahost.errors import HostError


class PyBudaError(RuntimeError):
    """A mistake of the program: what came, and what was expected."""


@contextmanager
def as_own(before: str = "") -> Iterator[None]:
    """Raise what `HostError` says as `PyBudaError`, with words before it."""
    try:
        yield
    except HostError as error:
        raise PyBudaError(f"{before}{error}") from error


def counted(name: str, count: object, least: int = 0) -> int:
    """Return a number from `least` on. Raises `PyBudaError` for anything else."""
    if not isinstance(count, int) or isinstance(count, bool) or count < least:
        raise PyBudaError(f"{name} is {count!r}; a whole number from {least} on was expected")
    return count


def require_kind(**given: tuple[object, type]) -> None:
    """Raise `PyBudaError` for an argument that is neither None nor of its type."""
    for name, (value, kind) in given.items():
        if value is not None and not isinstance(value, kind):
            spelled = f"{kind.__module__}.{kind.__name__}".removeprefix("builtins.")
            raise PyBudaError(f"{name} is {shown(value)}; a {spelled} was expected")


def require_queues(**given: object) -> None:
    """Raise `PyBudaError` for an argument that is neither None nor a queue."""
    for name, value in given.items():
        if value is not None and not (hasattr(value, "put") and hasattr(value, "get")):
            raise PyBudaError(f"{name} is {shown(value)}; a queue.Queue was expected")


def listed(what: str, given: object, kind: type | tuple[type, ...], of: str) -> list[Any]:
    """Return a list of instances of `kind`, which are `of` something. Raises `PyBudaError` else."""
    if not isinstance(given, list | tuple):
        raise PyBudaError(f"{what} is {shown(given)}; a list of {of} was expected")
    for index, each in enumerate(given):
        if not isinstance(each, kind):
            raise PyBudaError(f"{what}[{index}] is {shown(each)}; {what} is a list of {of}")
    return [*given]


_MODULE: Mapping[str, str] = {
    "export the model to ONNX": "TFLiteModule JaxModule MXNetModule",
    "models with a cache between calls do not run": "run_generate run_generative_inference",
    "sambac.compile gives a program": "pybuda_compile",
    "devices are no devices of torch; place a PyTorchModule": "get_tenstorrent_device",
}

OF_MODULE = {name: says for says, names in _MODULE.items() for name in names.split()}
"""What there is instead, by name, of what is absent in `pybuda`."""


def refuse(owner: str, name: str, absent: Mapping[str, str], known: Iterable[str]) -> NoReturn:
    """Raise `AttributeError` for `name`, with what there is instead, or may be meant."""
    if name in absent:
        raise AttributeError(f"{owner} has no '{name}': {absent[name]}")
    raise AttributeError(f"{owner} has no '{name}'{did_you_mean(name, [*known])}")
