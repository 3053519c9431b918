"""What a model can say about how it should be mapped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import overload

from torch import nn

from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.arguments.kinds import MODULE, NAME, NAMES, ArgumentKind

__all__ = ["Fusion", "op_fusion", "sdpa_directives"]

_ATTRIBUTE = "sn_op_fusion"


@dataclass(frozen=True)
class Fusion:
    """Asks that operators become one kernel: its name, and hints for the mapper of hardware."""

    func_name: str = ""
    heuristic: str | Mapping[str, str] | None = None
    plugins: tuple[str, ...] = ()
    user_annotated: bool = True


_HEURISTIC = ArgumentKind(
    "a name, or a dict by name, or None",
    lambda v: v is None or isinstance(v, (str, Mapping)),
)
_PLUGINS = ArgumentKind(
    "a name, or a list of names, or None", lambda v: NAME.fits(v) or NAMES.or_none().fits(v)
)


@overload
def op_fusion(
    module: nn.Module,
    func_name: str = ...,
    *,
    heuristic: str | Mapping[str, str] | None = ...,
    plugins: str | Sequence[str] = ...,
    user_annotated: bool = ...,
) -> nn.Module: ...
@overload
def op_fusion(
    module: None = ...,
    func_name: str = ...,
    *,
    heuristic: str | Mapping[str, str] | None = ...,
    plugins: str | Sequence[str] = ...,
    user_annotated: bool = ...,
) -> AbstractContextManager[Fusion]: ...


@checked("directives.op_fusion", module=MODULE.or_none(), heuristic=_HEURISTIC, plugins=_PLUGINS)
def op_fusion(
    module: nn.Module | None = None,
    func_name: str = "",
    *,
    heuristic: str | Mapping[str, str] | None = None,
    plugins: str | Sequence[str] = (),
    user_annotated: bool = True,
) -> nn.Module | AbstractContextManager[Fusion]:
    """Mark operators that belong together: those of `module`, or those in a `with` block.

    With a module the mark is its attribute `sn_op_fusion`, and the module is returned. Without one
    the result is a context manager that gives the mark. The compiler forms kernels by itself, of
    the whole graph (o3) or by rules (o1), and does not ask for marks: a rule file says what to fuse
    there. Heuristics and plugins are libraries for hardware, named but not loaded.
    """
    named = (plugins,) if isinstance(plugins, str) and plugins else tuple(plugins or ())
    mark = Fusion(func_name, heuristic, named, user_annotated)
    if module is None:
        return _block(mark)
    module.__dict__[_ATTRIBUTE] = mark
    return module


@checked()
@contextmanager
def sdpa_directives(directives: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """Give `directives` to the attention in the `with` block.

    Attention is compiled from its shapes alone, so none of them changes a result or a kernel.
    """
    yield dict(directives)


@contextmanager
def _block(mark: Fusion) -> Iterator[Fusion]:
    yield mark
