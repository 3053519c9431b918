"""Buffers to which `forward` assigns tensors, and parameters, to which it may not.

    self.mean = 0.9 * self.mean + 0.1 * x.mean(0)

torch.export records some of these as new values of the buffers, if `self` is the module that is
exported, and loses the others. Here they become writes to the buffers, which are always recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from pef.wording import listed
from sambac.errors import CompileError
from sambac.frontend.torch.states import share_memory

from .inputs import module_name
from .tape import tensors_in

Buffers: TypeAlias = Mapping[tuple[str, str], torch.Tensor | None]
"""What buffers hold, by the path of the module and the name there."""

Tables: TypeAlias = Sequence[tuple[dict[str, Any], str, dict[str, Any], Mapping[str, Any]]]
"""Tables of modules: the attributes that each is among, its name there, itself, what it held."""
_TABLES = ("_parameters", "_buffers", "_modules")

_SET_DATA = torch.Tensor.data.__set__  # type: ignore[attr-defined]
"""What assigning to `.data` of a tensor calls."""

_GET_DATA = torch.Tensor.data.__get__  # type: ignore[attr-defined]
"""What reading `.data` of a tensor calls, which a recording would lose sight of."""


def buffers_of(module: torch.nn.Module) -> Buffers:
    """Return the buffers of `module`, whose path is empty, and of those inside of it."""
    return {
        (path, name): tensor
        for path, inner in module.named_modules()
        for name, tensor in inner._buffers.items()
    }


def write_assigned(
    module: torch.nn.Module,
    before: Buffers,
    computed: Callable[[torch.Tensor], bool],
    result: object,
    training: bool,
) -> object:
    """Write what was assigned to buffers of `module`, which were `before`, to these.

    Return the `result` of the call, in which buffers are what they were. What does not fit the
    buffer is left out if it is the same in every call. Raises `CompileError` if it was `computed`
    from inputs or from buffers, for a buffer of two names of which one is assigned to, and for one
    that becomes a parameter or another buffer in `training`.
    """
    after = buffers_of(module)
    writes = []
    for place, new in after.items():
        old = before.get(place)
        if new is None or new is old:
            continue
        if old is not None and (old.shape, old.dtype) == (new.shape, new.dtype):
            _require_together(module, place, before, after)
            if training:  # else nothing changes what it would show
                _require_apart(module, place, new, before)
            writes.append((old, new.detach().clone()))  # which may be a buffer written to here
        elif computed(new):
            raise CompileError(
                f"{module_name(module)} assigns {_described(new)} to the buffer "
                f"{spelled(place)}, which is {_described(old)}, with values "
                "that depend on inputs or on earlier calls; let it keep its shape and type, or "
                "return it"
            )
    kept = pytree.tree_map_only(torch.Tensor, torch.clone, result) if writes else result
    if writes:  # else a recording would have a region, which PyTorch may be unable to take apart
        with torch.no_grad():
            for old, new in writes:
                old.copy_(new)
    return kept


def told_of_new_shapes(module: torch.nn.Module, before: Buffers) -> list[str]:
    """Return a sentence about buffers of `module` that a call made of other shapes than `before`.

    Those that no checkpoint has are not told of.
    """
    named = dict(module.named_modules())
    found = [
        f"{spelled(place)} ({_described(before.get(place))} becomes {_described(new)})"
        for place, new in buffers_of(module).items()
        if new is not None
        and _described(before.get(place)) != _described(new)
        and place[1] not in named[place[0]]._non_persistent_buffers_set
    ]
    sentence = (
        f"the first call makes the buffers {listed(found, separator=', ')}, which checkpoints of "
        "the program hold as they are now: call the module once before it is compiled, if they "
        "are to hold what it makes"
    )
    return [sentence] if found else []


def _require_together(
    module: torch.nn.Module, place: tuple[str, str], before: Buffers, after: Buffers
) -> None:
    """Raise `CompileError` if a name of the buffer at `place` is not what that now is."""
    for other, tensor in before.items():
        if tensor is before[place] and after.get(other) is not after[place]:
            raise CompileError(
                f"{module_name(module)} assigns to the buffer {spelled(place)}, which is also "
                f"{spelled(other)}; after the first call they would be two: write with copy_() if "
                "both are meant, or register two tensors"
            )


def _require_apart(
    module: torch.nn.Module, place: tuple[str, str], new: torch.Tensor, before: Buffers
) -> None:
    """Raise `CompileError` if `new`, the buffer at `place`, is another one too, or a parameter."""
    stayed = (other for other, tensor in buffers_of(module).items() if tensor is before.get(other))
    owners = [
        *(spelled(other) for other in stayed if before[other] is new),
        *(name for name, parameter in module.named_parameters() if share_memory(new, parameter)),
    ]
    if owners:
        raise CompileError(
            f"{module_name(module)} lets the buffer {spelled(place)} be {owners[0]}, "
            "whose later changes it would show; assign a copy, with clone()"
        )


def tables_of(module: torch.nn.Module) -> Tables:
    """Return the tables of `module`, and of those inside of it, where they are and what they hold.

    Those of TorchScript, which are no dicts, cannot get other entries.
    """
    python = [vars(one) for one in module.modules() if not isinstance(one, torch.jit.ScriptModule)]
    return [(own, name, own[name], dict(own[name])) for own in python for name in _TABLES]


def require_parameters(
    module: torch.nn.Module, before: Mapping[str, torch.Tensor], training: bool
) -> None:
    """Raise `CompileError` if a parameter of `module` is another tensor than `before`.

    Unless in `training` it may be another parameter that stayed what it was.
    """
    after = dict(module.named_parameters(remove_duplicate=False))
    changed = [name for name, old in before.items() if after.get(name, old) is not old]
    stayed = {id(old) for name, old in before.items() if name not in changed}
    others = [name for name in changed if training or id(after[name]) not in stayed]
    if others:
        raise CompileError(
            f"{module_name(module)} assigns to its parameters {listed(others, separator=', ')}, "
            "which only optimizers change; let parameters be one in __init__, or register a "
            "buffer for what forward changes"
        )


def require_same_gradients(
    module: torch.nn.Module,
    parameters: Mapping[str, torch.Tensor],
    changed: Callable[[torch.Tensor], bool],
) -> None:
    """Raise `CompileError` if `forward` has `changed` what trains of `module`."""
    others = [name for name, tensor in parameters.items() if changed(tensor)]
    if others:
        raise CompileError(
            f"{module_name(module)} freezes or thaws its parameters "
            f"{listed(others, separator=', ')} in forward (requires_grad), which cannot be "
            "recorded; do it before compiling, or use detach() or no_grad()"
        )


def put_back(tables: Tables) -> None:
    """Let tables be where they were and hold what they held, and nothing else."""
    for attributes, name, table, before in tables:
        attributes[name] = table
        table.clear()
        table.update(before)


def _described(tensor: torch.Tensor | None) -> str:
    if tensor is None:
        return "None"
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def spelled(place: tuple[str, str]) -> str:
    """Return how messages call what is at `place`."""
    return ".".join(filter(None, place))


class ParameterReader(TorchFunctionMode):
    """Sees whether parameters that are read want the gradients that they did before.

    Refuses what changes tensors unseen, of the module called `name`. What `.data` gives is what
    `detach()` does: another name of the tensor, without gradients.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._trained: dict[int, bool] = {}
        self._changed: set[int] = set()

    def begin(self, values: Iterable[object]) -> None:
        """Look at the parameters `values`."""
        parameters = [value for value in values if isinstance(value, torch.Tensor)]
        self._trained = {id(value): value.requires_grad for value in parameters}
        self._changed = set()

    def changed(self, parameter: torch.Tensor) -> bool:
        """Tell whether `parameter` was read, or is left, wanting other gradients than before."""
        return id(parameter) in self._changed or self._differs(parameter)

    def _differs(self, parameter: torch.Tensor) -> bool:
        return self._trained[id(parameter)] is not parameter.requires_grad

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run `func`, and remember parameters that it was given."""
        if func == _SET_DATA:
            if _is_its_own(*args):
                return None
            raise CompileError(
                f"{self._name} assigns to .data of a tensor, which cannot be recorded; change "
                "parameters outside of forward, and buffers with copy_()"
            )
        if func == _GET_DATA:
            return torch.Tensor.detach(*args)  # type: ignore[arg-type]
        given = [one for one in tensors_in((args, kwargs)) if id(one) in self._trained]
        with torch._C.DisableTorchFunction():
            self._changed.update(id(leaf) for leaf in given if self._differs(leaf))
        return func(*args, **(kwargs or {}))


def _is_its_own(tensor: object, data: object) -> bool:
    """Tell whether `data` is what `tensor` has anyway, as where nothing had to be converted."""
    if not isinstance(tensor, torch.Tensor) or not isinstance(data, torch.Tensor):
        return False
    one, other = (
        (
            item.untyped_storage()._cdata,
            item.storage_offset(),
            item.shape,
            item.stride(),
            item.dtype,
        )
        for item in (tensor, data)
    )
    return one == other
