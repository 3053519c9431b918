"""Objects of other classes that hold tensors are collections of what their attributes hold.

    Cache(layers=[Layer(keys=k, values=v, size=8)])  ->  [[k, v]]     size stays what it is

PyTorch knows tuples, lists, dicts and what libraries have made known to it. What else arguments
and results have tensors in, such as the caches of keys and values of transformers, is made known
to it for as long as a module is recorded and exported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps

from torch.utils import _pytree as pytree

from pef.wording import listed
from sambac.errors import CompileError

from .held import Held, attributes_in, bare, put_in
from .inputs import arguments_of
from .tape import SYMBOLIC


@dataclass(frozen=True)
class _Attributes:
    """What an object has: attributes that hold tensors, by name, and `others` with their values."""

    _fields: tuple[str, ...]
    others: Mapping[str, object] = field(compare=False)

    def __deepcopy__(self, _memo: object) -> _Attributes:
        return self  # nothing writes to it, and not everything can be copied


@contextmanager
def forgotten_holders() -> Iterator[None]:
    """Let PyTorch know afterwards what collections it knew before, and no others."""
    before = _known()
    try:
        yield
    finally:
        for kind in _known() - before:
            pytree._deregister_pytree_node(kind)


def _known() -> set[type]:
    nodes = pytree.SUPPORTED_NODES.items()
    return {kind for kind, node in nodes if node.flatten_fn is _flattened}


def make_inputs_known(given: Mapping[str, object]) -> None:
    """Let PyTorch take objects in inputs that hold tensors for collections of them.

    Raises `CompileError` for an object that holds tensors and itself, and for one that is at two
    places: to `forward` it would be two, of which it may change one.
    """
    held = _held(given)
    _make_known(held)
    double = held.in_two_places()
    if double is not None:
        one, other = double
        raise CompileError(
            f"the same object of the class {type(one.value).__name__} is the input "
            f"{'.'.join(one.path)} and the input {'.'.join(other)}, which are two in a program; "
            "give each an object of its own, or give it once"
        )


def taking_apart(
    call: Callable[..., object], forward: Callable[..., object], told: list[str]
) -> Callable[..., object]:
    """Return `call`, which takes what `forward` does, with objects in results made known.

    `told` gets a sentence of numbers, texts and flags in its inputs that the first call changes.
    """
    called: list[bool] = []

    @wraps(call)
    def known(*args: object, **kwargs: object) -> object:
        given = arguments_of(forward, args, kwargs)
        before = _held(given).plain_values()
        result = call(*args, **kwargs)
        after = _held(given).plain_values()
        _make_known(_held(result))
        told.extend(_told_of_changes(before, after) if not called else ())
        called.append(True)
        return result

    return known


def _told_of_changes(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    changed = [
        f"{path} = {value!r}"
        for path, value in before.items()
        if path in after and _differ(value, after[path])
    ]
    sentence = (
        f"forward changes values in its inputs: {listed(changed, separator=', ')}; every run of "
        "the program finds them so; what is to change from run to run is a tensor"
    )
    return [sentence] if changed else []


def _differ(before: object, after: object) -> bool:
    """Tell of values that are not equal; of open sizes, of which no question may be asked, none."""
    if type(before) is not type(after):
        return True
    return not isinstance(before, SYMBOLIC) and before is not after and before != after


def _held(value: object) -> Held:
    return Held(value, _is_collection)


def _make_known(held: Held) -> None:
    circular = held.circular()
    if circular is not None:
        raise CompileError(
            f"an object of the class {type(circular.value).__name__} holds tensors and itself; "
            "give or return the tensors in a dict"
        )
    for kind in dict.fromkeys(type(one.value) for one in held.in_objects()):
        if kind not in pytree.SUPPORTED_NODES:
            pytree._private_register_pytree_node(
                kind,
                _flattened,
                _Unflattening(kind),
                serialized_type_name=f"sambac.{kind.__module__}.{kind.__qualname__}.{id(kind)}",
                flatten_with_keys_fn=_flattened_with_keys,
            )


def _is_collection(value: object) -> bool:
    """Tell whether PyTorch knew what `value` holds before objects were made known to it."""
    node = pytree.SUPPORTED_NODES.get(type(value))
    known = node is not None and node.flatten_fn is not _flattened
    return known or pytree.is_namedtuple_instance(value)


def _flattened(value: object) -> tuple[list[object], _Attributes]:
    held, attributes = _held(value), attributes_in(value)
    parts = {name: part for name, part in attributes.items() if held.holds_tensors(part)}
    others = {name: part for name, part in attributes.items() if name not in parts}
    return [*parts.values()], _Attributes(tuple(parts), others)


def _flattened_with_keys(value: object) -> tuple[list[tuple[pytree.KeyEntry, object]], _Attributes]:
    parts, attributes = _flattened(value)
    keys = map(pytree.GetAttrKey, attributes._fields)
    return list(zip(keys, parts, strict=True)), attributes


@dataclass(frozen=True)
class _Unflattening:
    """What makes objects of the class `kind` of their parts, without calling its code."""

    kind: type

    def __call__(self, parts: Iterable[object], attributes: _Attributes) -> object:
        """Return an object that holds `parts`; collections beside them are copied."""
        made = bare(self.kind)
        others = pytree.tree_map(
            lambda item: item, dict(attributes.others), is_leaf=lambda one: not _is_collection(one)
        )
        put_in(made, {**others, **dict(zip(attributes._fields, parts, strict=True))})
        return made
