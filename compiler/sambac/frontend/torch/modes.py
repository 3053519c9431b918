"""Whether a module computes the same as it trains and as it evaluates.

What does not ask in which mode it is does, and is recorded once: recording is most of the time
that a small model takes to compile. Where two recordings are equal, one export serves both.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from threading import Lock
from types import FrameType

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind

from sambac.frontend.source import Source
from sambac.graph.nodes import all_nodes, is_stop

from .export import RANDOM
from .states import has_no_content

_MODE = "training"
"""The attribute that says in which mode a module is."""

_CHANGES = ("train", "eval", "__setattr__", "__getattribute__")
"""Methods by which a module may do more, where its mode changes, than note it."""

_PAST_IT = frozenset({"__dict__", "__getstate__", "__reduce_ex__", "dumps", "vars"})
"""By which code gets to all that a module has, the mode too, without asking for the attribute."""

_NO_MODULE = ("sambac.", "torch.fx.graph_module")
"""Who asks without computing anything: this compiler, and PyTorch for the mode of a new graph."""


class Reader:
    """Sees whether somebody asks for the mode of a module."""

    def __init__(self) -> None:
        self.asked = False


class _WatchedMode:
    """The attribute of all modules meanwhile, which tells the readers that it was asked for."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.readers: list[Reader] = []

    def __get__(self, module: torch.nn.Module | None, owner: type | None = None) -> bool:
        if not torch.compiler.is_dynamo_compiling():  # of a part, see `is_for_both`
            self.tell(sys._getframe(1))
        if module is None or _MODE not in module.__dict__:
            raise AttributeError(_MODE)
        mode: bool = module.__dict__[_MODE]
        return mode

    def __set__(self, module: torch.nn.Module, mode: bool) -> None:
        vars(module)[_MODE] = mode

    def __delete__(self, module: torch.nn.Module) -> None:
        del vars(module)[_MODE]

    def tell(self, frame: FrameType) -> None:
        """Tell the readers that code in `frame` asks, if it is that of a module."""
        if not str(frame.f_globals.get("__name__")).startswith(_NO_MODULE):
            for reader in tuple(self.readers):
                reader.asked = True

    @contextmanager
    def told(self, reader: Reader) -> Iterator[None]:
        """Tell `reader` for a while; several threads may do so at once."""
        with self.lock:
            self.readers.append(reader)
            setattr(torch.nn.Module, _MODE, self)
        try:
            yield
        finally:
            with self.lock:
                self.readers.remove(reader)
                if not self.readers:
                    delattr(torch.nn.Module, _MODE)


_WATCHED = _WatchedMode()


@contextmanager
def reading_mode(module: torch.nn.Module, names: Collection[str]) -> Iterator[Reader]:
    """Yield what will have seen whether `module` asks for its mode, as code of its own may.

    Its code says such `names`. What may do so where nobody sees it counts as code that does.
    """
    reader = Reader()
    reader.asked = not (all(map(_is_plain, module.modules())) and _PAST_IT.isdisjoint(names))
    with _WATCHED.told(reader):
        yield reader


def _is_plain(module: torch.nn.Module) -> bool:
    """Tell whether nothing but its code asks for the mode of `module`, and by its attribute.

    TorchScript has code of its own. A class may have another attribute of the name.
    """
    if isinstance(module, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        return False
    kind = type(module)
    own = any(_MODE in vars(base) for base in kind.__mro__ if base is not torch.nn.Module)
    own = own or any(name in vars(module) for name in _CHANGES)
    return not own and all(_is_pytorchs(kind, name) for name in _CHANGES)


def _is_pytorchs(kind: type[torch.nn.Module], name: str) -> bool:
    method = getattr(kind, name)
    return method is getattr(object, name, None) or str(method.__module__).startswith("torch.nn.")


def is_for_both(program: ExportedProgram, reader: Reader) -> bool:
    """Tell whether `program`, which trains, is what the module computes as it evaluates, too.

    Not where it writes buffers, or has parts that were recorded in another way.
    """
    writes = {spec.kind for spec in program.graph_signature.output_specs} - {OutputKind.USER_OUTPUT}
    parts = any(isinstance(part, fx.GraphModule) for part in program.graph_module.children())
    return not (reader.asked or writes or parts)


def are_equal(one: ExportedProgram, other: ExportedProgram) -> bool:
    """Tell whether two recordings of one module have equal operators and constants."""
    return (
        str(one.graph_signature) == str(other.graph_signature)
        and _code(one) == _code(other)
        and one.constants.keys() == other.constants.keys()
        and all(_same(item, other.constants[name]) for name, item in one.constants.items())
    )


def says_the_same(source: Source) -> bool:
    """Tell whether nothing in an export for training is there for the sake of training alone.

    It stops gradients, draws what an evaluation translates otherwise, and updates buffers.
    """
    nodes = [*all_nodes(source.model.graph)]
    draws = any(node.op_type in RANDOM and node.domain == "" for node in nodes)
    updates = source.roles is not None and bool(source.roles.updates)
    return not (draws or updates or any(map(is_stop, nodes)))


def _code(program: ExportedProgram) -> list[tuple[str, str]]:
    parts = program.graph_module.named_modules()
    return [(name, part.code) for name, part in parts if isinstance(part, fx.GraphModule)]


def _same(one: object, other: object) -> bool:
    if one is other:
        return True
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        return False
    if has_no_content(one) or has_no_content(other) or one.dtype is not other.dtype:
        return False
    return torch.equal(one, other)
