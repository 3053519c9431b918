"""Building modules whose parameters have no values yet, but know how they would get them.

While recording is on, tensors that a module's constructor makes get a history (`histories`), and
what is registered as a parameter with one becomes a parameter without values: a tensor that
torch.empty made has used no memory until then. Everything that is written into it later, such as
initial values, is recorded instead of done.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from types import CodeType, FrameType, FunctionType
from typing import TypeAlias, cast

import torch
from torch import nn
from torch.nn import init
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.overrides import TorchFunctionMode

from .histories import (
    HISTORIES,
    TARGET,
    RecordedCall,
    ValueRecipe,
    leaves,
    mapped,
    replay,
    start,
    write,
)
from .rng import NAMES as DRAWN
from .rng import RNGProvider, RNGProviderFactory

_FACTORIES = frozenset(
    {
        *(torch.empty, torch.zeros, torch.ones, torch.full, torch.eye, torch.tensor),
        *(torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal),
        *(torch.arange, torch.linspace),
    }
)
"""What makes tensors from no other tensors."""

_KEEPS_VALUES = frozenset(
    {"requires_grad_", "detach_", "rename_", "share_memory_", "t_", "transpose_", "swapaxes_"}
    | {"swapdims_", "squeeze_", "unsqueeze_", "as_strided_"}
)
"""Ends in an underscore and writes no element."""

_ASKS_FOR_VALUES = frozenset(
    {"item", "tolist", "numpy", "__bool__", "__float__", "__int__", "__index__", "equal"}
    | {"allclose", "__array__"}
)
"""Cannot be done without values: they are made for the occasion."""


StandIn: TypeAlias = Callable[[torch.Tensor, ValueRecipe], torch.Tensor]
"""Makes a parameter without values: like a tensor, with the recipe of its values."""


class Recorder(TorchFunctionMode):
    """The mode that records; one at a time is on in a thread, other threads compute as always."""

    def __init__(self, providers: RNGProviderFactory) -> None:
        super().__init__()
        self._providers = providers

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run `func`, or record it where an argument has no values yet."""
        kwargs = kwargs or {}
        body = _BODIES.get(func.__name__) if isinstance(func, FunctionType) else None
        if body is not None and "tensor" in kwargs:
            # Such a function of torch.nn.init gives itself away; its body is what can be recorded.
            # Others put functions of their own in its place, so that the name alone is known.
            with self:
                return body(**kwargs)
        if func == _IS_META and self._note_init(sys._getframe(1)):
            return True
        if func in _FACTORIES and kwargs.get("out") is None:
            return self._made(func, args, kwargs)
        if len(HISTORIES) and any(_recorded(leaf) for _, leaf in leaves((args, dict(kwargs)))):
            return self.record(func, args, kwargs)
        return func(*args, **kwargs)

    def record(
        self, func: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> object:
        """Run `func`, of which an argument has a history, on what there is, and record it."""
        if func.__name__ in _ASKS_FOR_VALUES:
            return func(*cast(tuple[object, ...], mapped(_value, args)), **_values(kwargs))
        place = _written(func, args, kwargs)
        target = HISTORIES.region(place) if isinstance(place, torch.Tensor) else None
        call = self._call(func, args, kwargs, place if target else None)
        if target is not None:
            write(target, call)
            return _run(func, args, kwargs) if _has_effect(place, args, kwargs) else place
        found = _run(func, args, kwargs)
        if func.__name__ not in _KEEPS_VALUES:
            _begin(found, call)
        return found

    def _note_init(self, caller: FrameType | None) -> bool:
        """Record the call of torch.nn.init that asks whether a tensor has values; tell if one does.

        Some of its functions do nothing then, and that question is all that is seen of them.
        """
        function = _SILENT.get(caller.f_code) if caller is not None else None
        if caller is None or function is None:
            return False
        code = caller.f_code
        given = {name: caller.f_locals[name] for name in code.co_varnames[: code.co_argcount]}
        tensor = given.pop("tensor")
        region = HISTORIES.region(tensor)
        if region is not None:
            write(region, RecordedCall(function, (TARGET,), given, self._provider(function)))
        return region is not None

    def _made(
        self, func: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> object:
        """Run a factory, and begin a history where a module is under construction."""
        made = func(*args, **kwargs)
        if isinstance(made, torch.Tensor) and _in_constructor():
            origin = None if func is torch.empty else self._call(func, args, kwargs, None)
            start(made, origin)
        return made

    def _call(
        self,
        func: Callable[..., object],
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        target: object,
    ) -> RecordedCall:
        """Return the call, with `target` and tensors that have histories taken out of it."""

        def kept(leaf: object) -> object:
            if target is not None and leaf is target:
                return TARGET
            region = HISTORIES.region(leaf) if isinstance(leaf, torch.Tensor) else None
            return region if region is not None else leaf

        known = mapped(kept, dict(kwargs))
        assert isinstance(known, dict)
        return RecordedCall(func, mapped(kept, args), known, self._provider(func))

    def _provider(self, func: Callable[..., object]) -> RNGProvider | None:
        return self._providers.build_provider() if func.__name__ in DRAWN else None


@contextmanager
def recording(providers: RNGProviderFactory, stand_in: StandIn) -> Iterator[Recorder]:
    """Record what is built in the block: see the module. `stand_in` makes lazy parameters."""
    recorder = Recorder(providers)
    hooks = (
        # torch says that hooks return nothing; its documentation, that they may return a tensor.
        register_module_parameter_registration_hook(partial(_on_parameter, stand_in)),  # type: ignore[arg-type]
        register_module_buffer_registration_hook(_on_buffer),  # type: ignore[arg-type]
    )
    try:
        with recorder:
            yield recorder
    finally:
        for hook in hooks:
            hook.remove()


def _on_parameter(
    stand_in: StandIn, module: nn.Module, name: str, value: object
) -> torch.Tensor | None:
    """Return what stands for a new parameter: one without values, if it has a history."""
    with torch._C.DisableTorchFunction():
        region = HISTORIES.region(value) if isinstance(value, torch.Tensor) else None
        if region is None or not isinstance(value, torch.Tensor):
            return None
        known = region.history.recipe() if region.history.recipe else None
        if known is not None:
            # Registered twice: tied. A module that registers the stand-in itself comes here too.
            tied = known.owner is not None and known.owner.shape == value.shape
            return known.owner if tied else None
        recipe = ValueRecipe(region)
        lazy = recipe.owner = stand_in(value, recipe)
        if not value.is_contiguous() or region.history.elements != value.numel():
            start(lazy, RecordedCall(torch.clone, (region,), {}))
        else:
            HISTORIES.add(lazy, region.history)
        region.history.recipe = weakref.ref(recipe)
    return lazy


def _on_buffer(module: nn.Module, name: str, value: object) -> torch.Tensor | None:
    """Return a buffer with values where it was computed from tensors without."""
    if isinstance(value, torch.Tensor) and value.is_meta:
        with torch._C.DisableTorchFunction():
            region = HISTORIES.region(value)
            return replay(region) if region is not None else None
    return None


def _written(
    func: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> object:
    """Return the tensor whose elements `func` overwrites, or None."""
    name = func.__name__
    if kwargs.get("out") is not None:
        return kwargs["out"]
    within = name.endswith("_") and not name.endswith("__") and name not in _KEEPS_VALUES
    augmented = name.startswith("__i") and name not in ("__invert__", "__int__", "__index__")
    return args[0] if args and (within or augmented or name == "__setitem__") else None


def _has_effect(place: object, args: tuple[object, ...], kwargs: Mapping[str, object]) -> bool:
    """Return whether writing into `place` does or checks something now."""
    tensors = [leaf for _, leaf in leaves((args, dict(kwargs))) if isinstance(leaf, torch.Tensor)]
    return not (isinstance(place, torch.Tensor) and place.is_meta and len(tensors) == 1)


def _begin(found: object, call: RecordedCall) -> None:
    """Begin a history for every new tensor among the results of `call`."""
    for path, leaf in leaves(found):
        if isinstance(leaf, torch.Tensor) and HISTORIES.find(leaf) is None:
            start(leaf, call, path)


def _run(
    func: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> object:
    """Run `func`; where one tensor has no values, results have none either."""
    tensors = [leaf for _, leaf in leaves((args, dict(kwargs))) if isinstance(leaf, torch.Tensor)]
    if all(tensor.is_meta for tensor in tensors) or not any(tensor.is_meta for tensor in tensors):
        return func(*args, **kwargs)

    def bare(leaf: object) -> object:
        real = isinstance(leaf, torch.Tensor) and not leaf.is_meta
        return leaf.to("meta") if real and isinstance(leaf, torch.Tensor) else leaf

    changed = mapped(bare, (args, dict(kwargs)))
    assert isinstance(changed, tuple)
    return func(*changed[0], **changed[1])


def _recorded(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor) and HISTORIES.find(leaf) is not None


def _value(leaf: object) -> object:
    region = HISTORIES.region(leaf) if isinstance(leaf, torch.Tensor) and leaf.is_meta else None
    return replay(region) if region is not None else leaf


def _values(kwargs: Mapping[str, object]) -> dict[str, object]:
    return cast(dict[str, object], mapped(_value, dict(kwargs)))


def _in_constructor() -> bool:
    """Return whether the constructor of a module is among the callers."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__init__" and code.co_varnames:
            with suppress(KeyError):
                if isinstance(frame.f_locals[code.co_varnames[0]], nn.Module):
                    return True
        frame = frame.f_back
    return False


def _kaiming_uniform(
    tensor: torch.Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """As torch.nn.init.kaiming_uniform_."""
    fans = init._calculate_fan_in_and_fan_out(tensor)
    fan = fans[0 if mode == "fan_in" else 1]
    gain = init.calculate_gain(nonlinearity, a)  # type: ignore[arg-type]  # checked there
    bound = math.sqrt(3.0) * gain / math.sqrt(fan)
    with torch.no_grad():
        return tensor.uniform_(-bound, bound, generator=generator)


_BODIES: dict[str, Callable[..., object]] = {
    "uniform_": init._no_grad_uniform_,
    "normal_": init._no_grad_normal_,
    "constant_": lambda tensor, val: init._no_grad_fill_(tensor, val),
    "kaiming_uniform_": _kaiming_uniform,
}
"""What the functions of torch.nn.init do that ask modes first, by name."""

_IS_META = torch.Tensor.is_meta.__get__  # type: ignore[attr-defined]  # a C descriptor

_SILENT: dict[CodeType, Callable[..., object]] = {
    function.__code__: function
    for function in (
        init.orthogonal_,
        init.dirac_,
        init.sparse_,
        init._no_grad_trunc_normal_,
    )
}
"""Functions that leave tensors without values alone, by their code."""
