"""What a model is called with: arguments, keywords, and the tensors in them under their names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from pef.arguments import shown
from pef.wording import listed
from sambaflow.samba.arguments.checked import require
from sambaflow.samba.arguments.kinds import NAME
from sambaflow.samba.errors import SambaError
from sambaflow.samba.tensors.tensor import SambaTensor, to_torch


@dataclass(frozen=True)
class Named:
    """A tensor among the arguments: `port` is what the compiler calls it, by its place."""

    port: str
    tensor: SambaTensor


@dataclass(frozen=True)
class ForwardCall:
    """The arguments of one call of `forward`."""

    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    tensors: tuple[Named, ...]


def call_of(model: nn.Module, inputs: object) -> ForwardCall:
    """Return the call that `inputs` stand for.

    A tuple or list holds arguments, with nested lists, tuples and None in them; a dict keywords;
    a tensor is the only argument. Tensors become SambaTensors, and those without a name get that
    of their place. Raises `SambaError` for names given twice, TypeError for what `forward` does not
    take.
    """
    args, kwargs = _parts(inputs)
    args, kwargs = pytree.tree_map_only(Tensor, _as_samba, (args, kwargs))
    bound = _bound(model, args, kwargs)
    found = tuple(
        Named("_".join(path), tensor)
        for name, value in _arguments(bound)
        for path, tensor in _leaves((name,), value)
    )
    names: dict[str, Tensor] = {}
    for named in found:
        require("sn_name", named.tensor.sn_name, NAME)
        named.tensor.sn_name = named.tensor.sn_name or named.port
        if names.setdefault(named.tensor.sn_name, named.tensor) is not named.tensor:
            raise SambaError(_twice(named.tensor.sn_name))
    return ForwardCall(tuple(args), dict(kwargs), found)


def plain_arguments(calls: Iterable[ForwardCall]) -> list[object]:
    """Return what is no tensor, nor None, in the arguments of `calls`: it is compiled in."""
    leaves = (leaf for call in calls for leaf in pytree.tree_leaves((call.args, dict(call.kwargs))))
    return [leaf for leaf in leaves if not (leaf is None or isinstance(leaf, Tensor))]


def tensors_by_name(
    inputs: object, compiled: Callable[[], Sequence[object]] | None = None
) -> Mapping[str, Tensor]:
    """Return the tensors of run-time inputs by their names, at any depth, without the Nones.

    A tensor without a name in a dict is called like its key. Raises `SambaError` for others
    without a name, for two of one name, for arrays, and where no tensor is among what is given;
    and, if `compiled` tells which plain arguments are compiled in, for others than these.
    """
    if isinstance(inputs, (list, tuple)):
        named = {item.sn_name: item for item in inputs if type(item) is SambaTensor}
        if len(named) == len(inputs) and "" not in named:
            return named  # as usual; the general way takes longer
    if isinstance(inputs, nn.Module):
        raise SambaError(
            f"run got a model ({type(inputs).__name__}) for input_tensors; leave the model out: "
            f"run(inputs, outputs)"
        )
    found, others = _sorted(inputs)
    if others:
        _require_numbers(others, alone=not found)
        _require_compiled(others, others if compiled is None else compiled())
    return found


def _sorted(inputs: object) -> tuple[dict[str, Tensor], list[object]]:
    """Return the tensors among `inputs` by name, and what is neither a tensor nor None."""
    found: dict[str, Tensor] = {}
    others: list[object] = []
    keyed = inputs if isinstance(inputs, Mapping) else {"": inputs}
    for key, value in keyed.items():
        for tensor in pytree.tree_leaves(value):
            if isinstance(tensor, Tensor):
                name = _name_of(tensor, str(key) if tensor is value else "")
                if found.setdefault(name, tensor) is not tensor:
                    raise SambaError(_twice(name))
            elif tensor is not None:
                others.append(tensor)
    return found, others


def _twice(name: str) -> str:
    return f"two inputs are called '{name}'; give each a name of its own"


def _require_numbers(others: Sequence[object], *, alone: bool) -> None:
    """Raise `SambaError` for arrays among what is no tensor, and for all of it if it is `alone`."""
    wrong = others if alone else [item for item in others if hasattr(item, "__array__")]
    if wrong:
        raise SambaError(
            f"input_tensors has a {type(wrong[0]).__name__}, expected tensors; make them with "
            f"samba.from_torch_tensor(tensor, name=...)"
        )


def _require_compiled(others: Sequence[object], compiled: Sequence[object]) -> None:
    """Raise `SambaError` for what no traced call had: a run would go on without it."""
    for item in others:
        if not any(item is known or item == known for known in compiled):
            traced = listed([shown(known) for known in compiled], separator=", ")
            raise SambaError(
                f"input_tensors has {shown(item)}, and was traced with {traced or 'none such'}: "
                f"what is no tensor is compiled in, and no run changes it; make tensors with "
                f"samba.from_torch_tensor(tensor, name=...)"
            )


def _name_of(tensor: Tensor, key: str) -> str:
    name = (tensor.sn_name if isinstance(tensor, SambaTensor) else "") or key
    if not name:
        raise SambaError(
            f"an input {tuple(tensor.shape)} has no name, and inputs are matched by name; make it "
            f"with samba.from_torch_tensor(tensor, name=...)"
        )
    return name


def _parts(inputs: object) -> tuple[Sequence[object], Mapping[str, object]]:
    if isinstance(inputs, Mapping):
        return (), {str(key): value for key, value in inputs.items()}
    if isinstance(inputs, Tensor):
        return (inputs,), {}
    if isinstance(inputs, (list, tuple)):
        return tuple(inputs), {}
    raise SambaError(
        f"inputs are a {type(inputs).__name__}, expected a tuple of SambaTensors, a dict by "
        f"argument of forward, or one SambaTensor"
    )


def _as_samba(tensor: Tensor) -> SambaTensor:
    """Return `tensor` as it is traced: 16-bit integers, which torch takes for no index, as 64."""
    found = tensor if isinstance(tensor, SambaTensor) else SambaTensor(tensor)
    if found.dtype is not torch.int16:
        return found
    return SambaTensor(to_torch(found).long(), name=found.sn_name)


def _bound(
    model: nn.Module, args: Sequence[object], kwargs: Mapping[str, object]
) -> inspect.BoundArguments:
    """Return which argument of `forward` is which. Raises TypeError for what it does not take."""
    signature = inspect.signature(model.forward)
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        # A decorator may take more than what it decorates, and then says what that takes.
        own = inspect.signature(model.forward, follow_wrapped=False)
        if own != signature:
            return own.bind(*args, **kwargs)
        raise TypeError(
            f"inputs do not fit {type(model).__name__}.forward{signature}: {error}"
        ) from error


def _arguments(bound: inspect.BoundArguments) -> Iterator[tuple[str, object]]:
    """Yield the arguments by name; those of `**kwargs` by their own."""
    kinds = {name: item.kind for name, item in bound.signature.parameters.items()}
    for name, value in bound.arguments.items():
        if kinds[name] is inspect.Parameter.VAR_KEYWORD:
            yield from value.items()
        else:
            yield name, value


def _leaves(path: tuple[str, ...], value: object) -> Iterator[tuple[tuple[str, ...], SambaTensor]]:
    if isinstance(value, SambaTensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves((*path, str(key)), item)
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from _leaves((*path, str(number)), item)
