"""Objects in arguments and results that hold tensors are collections of what they hold."""

from __future__ import annotations

import copy
import warnings
import weakref
from collections import UserDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from near import assert_near, exactly
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch_runs import Lambda

import sambac
import sambarun
from pef.graphs import data_inputs
from sambac.errors import CompileError


class Layer:
    """What one layer keeps; `size` is a number of Python, `label` nothing that counts."""

    def __init__(self, keys: Tensor | None = None, size: int | None = None) -> None:
        self.keys = keys
        self.values = None if keys is None else 2 * keys
        self.label = ["layer"]
        if size is not None:
            self.size = size


class Cache:
    """What layers keep from call to call, as libraries of transformers write it."""

    def __init__(self, *layers: Layer) -> None:
        self.layers = list(layers)

    def update(self, at: int, new: Tensor) -> Tensor:
        """Add rows to a layer, which is made when it is first needed."""
        while len(self.layers) <= at:
            self.layers.append(Layer())
        layer = self.layers[at]
        layer.keys = new if layer.keys is None else torch.cat([layer.keys, new])
        layer.values = new * new if layer.values is None else torch.cat([layer.values, new * new])
        layer.label.append("more")
        return layer.keys.sum(0) + layer.values.sum(0)


class Decoder(nn.Module):
    """Two layers over a cache that it is given, or makes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 4))

    def forward(self, x: Tensor, cache: Cache | None = None) -> dict[str, object]:
        """Return a result and the cache."""
        cache = Cache() if cache is None else cache
        for at in range(2):
            x = x * self.weight + torch.tanh(cache.update(at, x))
        return {"y": x, "cache": cache}


@dataclass
class Pair:
    """A class of data that no library has made known to PyTorch."""

    first: Tensor
    second: object = None
    flags: dict[str, bool] = field(default_factory=dict)


X = torch.linspace(-1, 1, 8).reshape(2, 4)


def _cache(size: int | None = None) -> Cache:
    return Cache(Layer(X + 1, size), Layer(X - 1, size))


def _exact(cache: Cache) -> Cache:
    """Return a copy with float64."""
    copies = [Layer() for _ in cache.layers]
    for one, layer in zip(copies, cache.layers, strict=True):
        one.keys, one.values = exactly(layer.keys), exactly(layer.values)
    return Cache(*copies)


def _tensors(cache: Cache) -> list[Tensor]:
    return [one for layer in cache.layers for one in (layer.keys, layer.values) if one is not None]


def _run(program: sambac.Program, *inputs: Tensor) -> dict[str, np.ndarray]:
    names = [port.name for port in data_inputs(program.graphs[0])]
    with sambarun.load(program) as executable:
        return executable.run(dict(zip(names, (one.numpy() for one in inputs), strict=True)))


def test_a_cache_is_an_input_and_a_result() -> None:
    module, cache = Decoder(), _cache()
    before = [one.clone() for one in _tensors(cache)]
    program = sambac.compile(module, inputs={"x": X, "cache": cache})
    assert all(map(torch.equal, _tensors(cache), before))
    assert [layer.label for layer in cache.layers] == [["layer"], ["layer"]]
    results = _run(program, X, *before)
    exact = _exact(cache)
    wanted = exactly(module)(exactly(X), exact)
    parts = [f"cache_layers_{at}_{what}_1" for at in range(2) for what in ("keys", "values")]
    assert [*results] == ["y", *parts]
    for found, tensor in zip(results.values(), [wanted["y"], *_tensors(exact)], strict=True):
        assert_near(found, tensor.detach().numpy())


def test_a_cache_that_a_module_makes_is_a_result() -> None:
    module = Decoder()
    results = _run(sambac.compile(module, inputs=(X,)), X)
    wanted = exactly(module)(exactly(X))
    assert [*results][:3] == ["y", "cache_layers_0_keys", "cache_layers_0_values"]
    tensors = [wanted["y"], *_tensors(wanted["cache"])]
    for found, tensor in zip(results.values(), tensors, strict=True):
        assert_near(found, tensor.detach().numpy())


def test_gradients_pass_through_objects() -> None:
    """A loss of what a cache holds, given and made."""

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.decoder = Decoder()

        def forward(self, x: Tensor, cache: Cache) -> Tensor:
            made = self.decoder(x, cache)
            held = made["cache"]
            return (made["y"] * held.layers[1].keys.sum()).square().mean()  # type: ignore[attr-defined]

    module = Loss()
    sgd = sambac.SGD(lr=1.0)
    options = sambac.CompileOptions(train=True, optimizers=(sgd,))
    program = sambac.compile(module, options, inputs={"x": X, "cache": _cache()})
    module.double()
    loss = module(exactly(X), _exact(_cache()))
    loss.backward()
    with sambarun.load(program) as executable:
        names = [port.name for port in data_inputs(program.graphs[0])]
        tensors = (X, *_tensors(_cache()))
        executable.step(dict(zip(names, (one.numpy() for one in tensors), strict=True)))
        state = executable.state()
    weight = module.decoder.weight
    assert weight.grad is not None
    assert_near(state["decoder.weight"], (weight - weight.grad).detach().numpy())


@pytest.mark.parametrize(
    ("wrap", "names"),
    [
        (lambda x: Pair(x, x + 1), ["first", "second"]),
        (lambda x: Pair(x, Pair(x + 1)), ["first", "second_first"]),
        (lambda x: Pair(x, [x + 1, None]), ["first", "second_0"]),
        (lambda x: SimpleNamespace(a=x, b="text", c=x + 1), ["a", "c"]),
        (lambda x: {"p": Pair(x), "q": (Pair(x + 1),)}, ["p_first", "q_0_first"]),
        (lambda x: UserDict(a=x, b=x + 1), ["data_a", "data_b"]),
        (
            lambda x: torch.distributions.Normal(x, x.exp(), validate_args=False),
            ["loc", "scale"],
        ),
    ],
    ids=["data", "nested", "list", "namespace", "in collections", "mapping", "distribution"],
)
def test_results_are_taken_apart(wrap: Callable[[Tensor], object], names: list[str]) -> None:
    results = _run(sambac.compile(Lambda(lambda x: wrap(2 * x)), inputs=(X,)), X)
    assert [*results] == names
    assert_near(results[names[0]], (2 * exactly(X)).numpy())
    kinds = {Pair, SimpleNamespace, UserDict, torch.distributions.Normal}
    assert kinds.isdisjoint(pytree.SUPPORTED_NODES)


class Counting(Decoder):
    """A decoder that counts what it is given."""

    def forward(self, x: Tensor, cache: Cache | None = None) -> dict[str, object]:
        """Return what a decoder does."""
        result = super().forward(x, cache)
        cache.layers[1].size += 2  # type: ignore[union-attr]
        return result


@pytest.mark.parametrize("by_name", [True, False])
@pytest.mark.parametrize("hooked", [True, False])
def test_numbers_in_inputs_that_change_are_told_of(by_name: bool, hooked: bool) -> None:

    def inputs(size: int | None) -> object:
        return {"x": X, "cache": _cache(size)} if by_name else (X, _cache(size))

    cache, module = _cache(size=3), Counting()
    if hooked:
        module.register_forward_pre_hook(lambda _module, _args: None)
    told = r"changes values in its inputs: cache\.layers\.1\.size = 3; every run of"
    with pytest.warns(UserWarning, match=told):
        sambac.compile(module, inputs={"x": X, "cache": cache} if by_name else (X, cache))
    assert cache.layers[1].size == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sambac.compile(Decoder(), inputs=inputs(3))
        sambac.compile(Decoder(), inputs=inputs(None))


def test_sizes_in_objects_can_stay_open() -> None:
    past = torch.export.Dim("past", min=1, max=9)
    shapes = {"x": None, "cache": [[[{0: past}, {0: past}] for _ in range(2)]]}
    module = Decoder()
    inputs = {"x": X, "cache": _cache()}
    program = sambac.compile(module, inputs=inputs, dynamic_shapes=shapes)
    longer = Cache(*(Layer(torch.cat([X, X, X]) + at) for at in range(2)))
    results = _run(program, X, *_tensors(longer))
    exact = _exact(longer)
    wanted = exactly(module)(exactly(X), exact)
    for found, tensor in zip(results.values(), [wanted["y"], *_tensors(exact)], strict=True):
        assert_near(found, tensor.detach().numpy())


class Slots:
    """An object without a dict of attributes, and with a slot that stays empty."""

    __slots__ = ("_empty", "x")

    def __init__(self, x: Tensor) -> None:
        self.x = x


class Both(Slots):
    """An object with a slot and a dict of attributes."""

    def __init__(self, x: Tensor) -> None:
        super().__init__(x + 1)
        self.y = x - 1


@dataclass(frozen=True, slots=True)
class Fixed:
    """An object whose attributes cannot be set, of which one is computed."""

    x: Tensor
    more: Tensor = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "more", 2 * self.x)


class Asking:
    """An object whose class has code for whatever is done to it; `x` is in a dict."""

    def __init__(self, x: Tensor) -> None:
        vars(self)["held"] = {"x": x}

    def __getattr__(self, name: str) -> object:
        try:
            return vars(self)["held"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: object) -> None:
        raise RuntimeError

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __hash__(self) -> int:
        raise RuntimeError

    def __bool__(self) -> bool:
        raise RuntimeError

    def __len__(self) -> int:
        return 0


_LAYER = nn.Linear(2, 2)


class Empty:
    """An object that holds no tensor so far."""

    def __init__(self) -> None:
        self.count = 1


def _beside(x: Tensor) -> SimpleNamespace:
    """Return an object with what cannot be copied, or is of a class without tensors."""
    dead = weakref.proxy(Empty())
    others = {"lock": Lock(), "rows": iter([1]), "dead": dead, "layer": _LAYER}
    return SimpleNamespace(x=x, layers=[Empty(), x + 1], around=_around(), **others)


def _around() -> Empty:
    """Return an object in many circles, each of which would be a way through all of them."""
    ones = [Empty() for _ in range(20)]
    for one in ones:
        one.others = ones  # type: ignore[attr-defined]
    return ones[0]


def _flat(value: object) -> list[Tensor]:
    """Return the tensors in an object, slots first."""
    kind = type(value)  # which what stands for another object that is gone has, too
    if issubclass(kind, Tensor):
        return [value]  # type: ignore[list-item]
    if issubclass(kind, (list, dict)):
        parts = value.values() if isinstance(value, dict) else value
        return [one for part in parts for one in _flat(part)]  # type: ignore[attr-defined]
    names = [name for name in ("more", "x") if name in getattr(kind, "__slots__", ())]
    known = issubclass(kind, (Both, Asking, SimpleNamespace, Pair))
    slots = [getattr(value, name) for name in names]
    return _flat([*slots, *(vars(value).values() if known else ())])


@pytest.mark.parametrize("make", [Slots, Both, Fixed, Asking, _beside, lambda x: Pair(x, Empty())])
def test_objects_of_all_kinds_are_inputs_and_results(make: Callable[[Tensor], object]) -> None:
    def forward(x: Tensor, one: object) -> object:
        value = one.first if isinstance(one, Pair) else one.x  # type: ignore[attr-defined]
        return [x * value, one, make(value + x)]

    program = sambac.compile(_Two(forward), inputs=(X, make(X)))
    results = _run(program, X, *_flat(make(X)))
    wanted = _flat(forward(exactly(X), make(exactly(X))))
    for found, tensor in zip(results.values(), wanted, strict=True):
        assert_near(found, tensor.numpy())


class _Two(nn.Module):
    """A function of two inputs."""

    def __init__(self, function: Callable[[Tensor, object], object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, one: object) -> object:
        """Return what the function returns."""
        return self.function(x, one)


def test_objects_of_an_example_stay_what_they_are() -> None:
    one = SimpleNamespace(x=X, flag=True, sizes=[1, {"a": 2}], stats=SimpleNamespace(count=0))
    one.seen, one.array, one.raw = set(), np.zeros(2), bytearray(b"a")
    before = copy.deepcopy(one)

    def forward(x: Tensor, one: SimpleNamespace) -> Tensor:
        one.sizes[0] += 1
        one.sizes[1]["a"] = 5
        one.stats.count += 1
        one.seen.add(3)
        one.array += 1
        one.raw[0] = 1
        one.flag, one.more = False, x
        return x * one.x

    told = (
        r"its inputs: one\.flag = True, one\.sizes\.0 = 1, one\.sizes\.1\.a = 2, "
        r"one\.stats\.count = 0; every"
    )
    with pytest.warns(UserWarning, match=told):
        sambac.compile(_Two(forward), inputs=(X, one))
    assert one.x is X
    del one.x, before.x
    np.testing.assert_array_equal(vars(one).pop("array"), vars(before).pop("array"))
    assert one == before


def test_tensors_that_are_written_may_want_gradients() -> None:
    """What trains is written to a tensor of the example, as caches of states are."""

    class Writing(Decoder):
        def forward(self, x: Tensor, cache: Cache | None = None) -> dict[str, object]:
            keys = cache.layers[0].keys  # type: ignore[union-attr]
            both = torch.cat([keys, x * self.weight])  # type: ignore[list-item]
            keys.copy_(both[-2:])  # type: ignore[union-attr]
            return {"y": both.square(), "cache": cache}

    module, exact = Writing(), _exact(_cache())
    results = _run(sambac.compile(module, inputs=(X, _cache())), X, *_tensors(_cache()))
    wanted = exactly(module)(exactly(X), exact)
    for found, tensor in zip(results.values(), [wanted["y"], *_tensors(exact)], strict=True):
        assert_near(found, tensor.detach().numpy())


def test_the_same_object_at_two_places_is_refused() -> None:
    """Forward may change one of them, and read the other."""
    one = SimpleNamespace(x=X)
    for inputs, places in (
        ((X, {"a": one, "b": [one]}), r"input one\.a and the input one\.b\.0, which are two"),
        ((one, one), "input x and the input one, which"),
    ):
        with pytest.raises(CompileError, match=f"the same object of the class Simple.*{places}"):
            sambac.compile(_Two(lambda x, one: [x, one]), inputs=inputs)
    twice = _run(sambac.compile(Lambda(lambda x: [Pair(x), *[Pair(2 * x)] * 2]), inputs=(X,)), X)
    assert_near(twice["output_2_first"], (2 * exactly(X)).numpy())


def _round() -> SimpleNamespace:
    one = SimpleNamespace(x=X)
    one.parts = [SimpleNamespace(whole=one, x=X)]
    return one


def _of_c(kind: type, *content: object) -> Callable[[Tensor], object]:
    """Return what makes an object with a tensor, of a class whose C code has a state of its own."""
    own = type("Own", (kind,), {})

    def made(x: Tensor) -> object:
        one = own(*content)
        one.x = x
        return one

    return made


@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: {x},
        lambda x: (x, "text", {x}),
        _of_c(deque, [3]),
        _of_c(dict),
        _of_c(OSError),
    ],
)
def test_what_else_is_returned_is_refused(wrap: Callable[[Tensor], object]) -> None:
    with pytest.raises(CompileError, match="returns something else than tensors, and collections"):
        sambac.compile(Lambda(lambda x: wrap(2 * x)), inputs=(X,))


def test_objects_that_hold_themselves_are_refused() -> None:
    says = "of the class SimpleNamespace holds tensors and itself; give or return the tensors"
    with pytest.raises(CompileError, match=says):
        sambac.compile(Lambda(lambda one: one.x * 2), inputs=(_round(),))

    def made(x: Tensor) -> object:
        one = _round()
        one.x = x
        return one

    with pytest.raises(CompileError, match=says):
        sambac.compile(Lambda(made), inputs=(X,))


def test_what_objects_hold_is_compared_with_what_is_exported() -> None:
    def asking(x: Tensor) -> Pair:
        return Pair(x, [x * 1.1] if torch.compiler.is_exporting() else [x])

    with pytest.warns(UserWarning, match=r"up to 10\.0 % of the largest number apart"):
        sambac.compile(Lambda(asking), inputs=(X,))
