"""Attributes of PyTorch put aside for a while, and what its exporters say of themselves."""

from __future__ import annotations

import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass, field
from functools import wraps
from threading import get_ident
from typing import Any

from torch import fx
from torch._C._functorch import (
    get_dynamic_layer_stack_depth,
    pop_dynamic_layer_stack_and_undo_to_depth,
)
from torch._export.passes import replace_autocast_with_hop_pass, replace_set_grad_with_hop_pass
from torch._export.utils import node_inline_
from torch.fx import traceback

_LOGGERS = ("torch", "onnxscript", "onnx_ir")
"""Who logs, with all below; what goes wrong is raised as well, and said in one sentence."""

_SILENT = logging.CRITICAL + 1
_INHERITED = object()


@contextmanager
def replaced(owner: object, attribute: str, value: object) -> Iterator[None]:
    """Let `attribute` of `owner` be `value` for a while, its own or one that it inherits."""
    getattr(owner, attribute)  # raises an error where PyTorch calls it something else now
    before = vars(owner).get(attribute, _INHERITED)
    setattr(owner, attribute, value)
    try:
        yield
    finally:
        if before is _INHERITED:
            delattr(owner, attribute)
        else:
            setattr(owner, attribute, before)


@contextmanager
def replaced_here(owner: object, name: str, by: Callable[..., object]) -> Iterator[None]:
    """Let a function of `owner` be another one for a while, for this thread alone."""
    here, before = get_ident(), vars(owner)[name]

    def call(*args: object, **kwargs: object) -> object:
        return (by if get_ident() == here else before)(*args, **kwargs)

    with replaced(owner, name, call):
        yield


@dataclass(frozen=True)
class OwnValue:
    """An attribute of a class that is `own` in one thread, and what it was `before` in others."""

    own: object
    before: object
    thread: int = field(default_factory=get_ident)

    def __get__(self, instance: object, owner: type) -> object:
        return self.own if get_ident() == self.thread else self.before


@contextmanager
def noting_here() -> Iterator[None]:
    """Keep other threads from noting anything on what is recorded.

    PyTorch has one dict of notes for all of them, and any may write there while there is an export.
    """
    here, before = get_ident(), traceback.annotate

    @wraps(vars(before)["__wrapped__"])  # by which PyTorch knows it
    def annotate(*notes: dict[str, Any]) -> AbstractContextManager[None]:
        return before(*notes) if get_ident() == here else nullcontext()

    with replaced(traceback, "annotate", annotate):
        yield


@contextmanager
def regions_of_bodies() -> Iterator[None]:
    """Let torch.export keep regions without gradients, or of another precision, that hold loops.

        with torch.no_grad():
            y = scan(step, start, x)

    It knows a region by its first node. Where the body of a loop comes first, the region would be
    forgotten: gradients would flow through it. What is outside of regions it puts back into one
    graph, and would throw away the bodies that regions hold. Other threads export as they did.
    """
    with (
        replaced_here(replace_set_grad_with_hop_pass, "nodes_first", _first_operator),
        replaced_here(replace_set_grad_with_hop_pass, "node_inline_", _put_back),
        replaced_here(replace_autocast_with_hop_pass, "nodes_first", _first_operator),
        replaced_here(replace_autocast_with_hop_pass, "node_inline_", _put_back),
    ):
        yield


def _first_operator(
    nodes: Iterable[fx.Node], is_meant: Callable[[fx.Node], bool]
) -> fx.Node | None:
    """Return the first of `nodes` that is meant and is no body, or nothing."""
    return next((node for node in nodes if node.op != "get_attr" and is_meant(node)), None)


def _put_back(node: fx.Node) -> fx.GraphModule | None:
    """Replace the call of a submodule by its operators; other submodules keep what they have."""
    module = node.graph.owning_module
    assert module is not None
    with replaced(module, "delete_all_unused_submodules", _nothing):
        found = node_inline_(node)
    module.delete_submodule(str(node.target))
    return found


def _nothing() -> None:
    """Delete nothing."""


@contextmanager
def levels_put_back() -> Iterator[None]:
    """Leave the levels of `vmap` that an error has left open: a recording opens each by itself."""
    depth = get_dynamic_layer_stack_depth()
    try:
        yield
    finally:
        pop_dynamic_layer_stack_and_undo_to_depth(depth)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep PyTorch's exporters from warning about themselves, and from printing what they raise.

    What a module prints is printed, if nothing is raised.
    """
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    # Setting a level makes every logger of the process look for its own again.
    loggers = [logger for logger in loggers if logger.level != _SILENT]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(_SILENT)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()) as said:
            warnings.simplefilter("ignore")
            yield
        sys.stderr.write(said.getvalue())
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
