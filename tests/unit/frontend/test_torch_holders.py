"""Objects in arguments and results that hold tensors are collections of what they hold."""

from __future__ import annotations

import copy
import warnings
from collections import UserDict
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from held_objects import (
    Cache,
    Decoder,
    Layer,
    Pair,
    Two,
    X,
    cache_of_two,
    exact_cache,
    run_program,
    tensors_of,
)
from near import assert_near, exactly
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch_runs import Lambda

import sambac
import sambarun
from pef.graphs import data_inputs
from sambac.errors import CompileError


def test_a_cache_is_an_input_and_a_result() -> None:
    module, cache = Decoder(), cache_of_two()
    before = [one.clone() for one in tensors_of(cache)]
    program = sambac.compile(module, inputs={"x": X, "cache": cache})
    assert all(map(torch.equal, tensors_of(cache), before))
    assert [layer.label for layer in cache.layers] == [["layer"], ["layer"]]
    results = run_program(program, X, *before)
    exact = exact_cache(cache)
    wanted = exactly(module)(exactly(X), exact)
    parts = [f"cache_layers_{at}_{what}_1" for at in range(2) for what in ("keys", "values")]
    assert [*results] == ["y", *parts]
    for found, tensor in zip(results.values(), [wanted["y"], *tensors_of(exact)], strict=True):
        assert_near(found, tensor.detach().numpy())


def test_a_cache_that_a_module_makes_is_a_result() -> None:
    module = Decoder()
    results = run_program(sambac.compile(module, inputs=(X,)), X)
    wanted = exactly(module)(exactly(X))
    assert [*results][:3] == ["y", "cache_layers_0_keys", "cache_layers_0_values"]
    tensors = [wanted["y"], *tensors_of(wanted["cache"])]
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
    program = sambac.compile(module, options, inputs={"x": X, "cache": cache_of_two()})
    module.double()
    loss = module(exactly(X), exact_cache(cache_of_two()))
    loss.backward()
    with sambarun.load(program) as executable:
        names = [port.name for port in data_inputs(program.graphs[0])]
        tensors = (X, *tensors_of(cache_of_two()))
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
    results = run_program(sambac.compile(Lambda(lambda x: wrap(2 * x)), inputs=(X,)), X)
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
        return {"x": X, "cache": cache_of_two(size)} if by_name else (X, cache_of_two(size))

    cache, module = cache_of_two(size=3), Counting()
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
    inputs = {"x": X, "cache": cache_of_two()}
    program = sambac.compile(module, inputs=inputs, dynamic_shapes=shapes)
    longer = Cache(*(Layer(torch.cat([X, X, X]) + at) for at in range(2)))
    results = run_program(program, X, *tensors_of(longer))
    exact = exact_cache(longer)
    wanted = exactly(module)(exactly(X), exact)
    for found, tensor in zip(results.values(), [wanted["y"], *tensors_of(exact)], strict=True):
        assert_near(found, tensor.detach().numpy())


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
        sambac.compile(Two(forward), inputs=(X, one))
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

    module, exact = Writing(), exact_cache(cache_of_two())
    results = run_program(
        sambac.compile(module, inputs=(X, cache_of_two())), X, *tensors_of(cache_of_two())
    )
    wanted = exactly(module)(exactly(X), exact)
    for found, tensor in zip(results.values(), [wanted["y"], *tensors_of(exact)], strict=True):
        assert_near(found, tensor.detach().numpy())


def test_the_same_object_at_two_places_is_refused() -> None:
    """Forward may change one of them, and read the other."""
    one = SimpleNamespace(x=X)
    for inputs, places in (
        ((X, {"a": one, "b": [one]}), r"input one\.a and the input one\.b\.0, which are two"),
        ((one, one), "input x and the input one, which"),
    ):
        with pytest.raises(CompileError, match=f"the same object of the class Simple.*{places}"):
            sambac.compile(Two(lambda x, one: [x, one]), inputs=inputs)
    twice = run_program(
        sambac.compile(Lambda(lambda x: [Pair(x), *[Pair(2 * x)] * 2]), inputs=(X,)), X
    )
    assert_near(twice["output_2_first"], (2 * exactly(X)).numpy())


def test_what_objects_hold_is_compared_with_what_is_exported() -> None:
    def asking(x: Tensor) -> Pair:
        return Pair(x, [x * 1.1] if torch.compiler.is_exporting() else [x])

    with pytest.warns(UserWarning, match=r"up to 10\.0 % of the largest number apart"):
        sambac.compile(Lambda(asking), inputs=(X,))
