"""Modules whose later calls are like the first, beside PyTorch, and modules whose calls are not.

A program does in every step what was recorded of one call.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable

import pytest
import torch
from near import assert_near, exactly
from repeated_calls import TRAIN, X, trains_as_in_torch
from torch import nn
from torch.nn import functional

import sambac
import sambarun

INFER = sambac.CompileOptions()

Term = Callable[["Model", torch.Tensor], torch.Tensor]


class Box:
    """An object of the user's."""

    value: torch.Tensor | None = None


KEPT: dict[str, torch.Tensor] = {}
COUNTER = itertools.count(1)


@functools.lru_cache
def norm_of(model: Model) -> torch.Tensor:
    return model.a.weight.detach().norm()


class Model(nn.Module):
    """Two layers, whose loss has a term that a function computes with what the model keeps."""

    def __init__(self, term: Term) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("made", None)
        self.register_buffer("room", torch.zeros(4, 4))
        self.register_buffer("steps", torch.zeros(4))
        self.kept: torch.Tensor | None = None
        self.number: float | None = None
        self.first, self.box = True, Box()
        self.tensors: list[torch.Tensor] = []
        self.table = torch.arange(4.0)
        self.term = term

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x).tanh()).square().mean() + 0.1 * self.term(self, x)


def in_an_attribute(m: Model, x: torch.Tensor) -> torch.Tensor:
    if m.kept is None:
        m.kept = m.a.weight.detach().norm()
    return m.kept * m.b.weight.sum()


def in_an_object(m: Model, x: torch.Tensor) -> torch.Tensor:
    if m.box.value is None:
        m.box.value = m.a.weight.detach().norm()
    return m.box.value * m.b.weight.sum()


def in_a_buffer_of_none(m: Model, x: torch.Tensor) -> torch.Tensor:
    if m.made is None:
        m.made = m.a.weight.detach().clone()
    return (m.made * m.b.weight).sum()


def in_a_buffer_once(m: Model, x: torch.Tensor) -> torch.Tensor:
    if m.first:
        m.room, m.first = m.a.weight.detach().clone(), False
    return (m.room * m.b.weight).sum()


def written_to_a_buffer_once(m: Model, x: torch.Tensor) -> torch.Tensor:
    if m.first:
        m.room.copy_(m.a.weight.detach())
        m.first = False
    return (m.room * m.b.weight).sum()


def added_to_a_buffer_once(m: Model, x: torch.Tensor) -> torch.Tensor:
    if m.first:
        m.steps.add_(1)
        m.first = False
    return (m.steps * m.b.weight).sum()


def added_to_a_buffer_but_once(m: Model, x: torch.Tensor) -> torch.Tensor:
    if not m.first:
        m.steps.add_(1)
    m.first = False
    return (m.steps * m.b.weight).sum()


def in_a_cached_function(m: Model, x: torch.Tensor) -> torch.Tensor:
    return norm_of(m) * m.b.weight.sum()


def in_a_variable(m: Model, x: torch.Tensor) -> torch.Tensor:
    if "norm" not in KEPT:
        KEPT["norm"] = m.a.weight.detach().norm()
    return KEPT["norm"] * m.b.weight.sum()


def as_a_number(m: Model, x: torch.Tensor) -> torch.Tensor:
    if m.number is None:
        m.number = m.a.weight.detach().norm().item()
    return m.b.weight.sum() * m.number


def of_inputs(m: Model, x: torch.Tensor) -> torch.Tensor:
    if m.kept is None:
        m.kept = x.mean()
    return m.kept * m.b.weight.sum()


def two_calls_ago(m: Model, x: torch.Tensor) -> torch.Tensor:
    m.tensors = [*m.tensors, x.mean()][-3:]
    return m.b.weight.sum() * (m.tensors[0] if len(m.tensors) == 3 else 1.0)


def counted_in_a_tensor(m: Model, x: torch.Tensor) -> torch.Tensor:
    m.kept = torch.ones(()) if m.kept is None else m.kept + 1
    return m.kept * m.b.weight.sum()


def another_formula_first(m: Model, x: torch.Tensor) -> torch.Tensor:
    term = m.b.weight.sum()
    if m.first:
        m.first = False
        return term * 2
    return term


def another_number_each(m: Model, x: torch.Tensor) -> torch.Tensor:
    return m.b.weight.sum() * next(COUNTER)


OTHERWISE: dict[Term, str] = {
    in_an_attribute: r"keeps Model\.kept .* what trains .* compute them in each call",
    in_an_object: r"keeps Model\.box\.value .* what trains",
    in_a_buffer_of_none: r"keeps made .* what trains",
    in_a_buffer_once: r"keeps room .* what trains",
    written_to_a_buffer_once: r"keeps room .* what trains",
    added_to_a_buffer_once: r"keeps steps .* on earlier calls",
    added_to_a_buffer_but_once: r"a later call of Model does not do .* from add_ \(test_repeated_c",
    in_a_cached_function: r"keeps a cache .* what trains",
    in_a_variable: r"keeps KEPT\.norm .* what trains",
    as_a_number: "a later call of Model does not do what the first does, from",
    of_inputs: r"keeps Model\.kept .* its inputs",
    two_calls_ago: r"a later call of Model does not do what the first does",
    counted_in_a_tensor: r"a later call of Model does not do .* let buffers be what changes",
    another_formula_first: r"later call .* from \w+ \(.*make the first call before compiling",
    another_number_each: r"a later call of Model does not do what the first does, from",
}
WHATEVER_TRAINS = (of_inputs, two_calls_ago, another_formula_first, another_number_each)


@pytest.fixture(autouse=True)
def _nothing_is_kept() -> None:
    KEPT.clear()
    norm_of.cache_clear()


@pytest.mark.parametrize("term", OTHERWISE, ids=lambda term: term.__name__)
def test_calls_that_are_not_like_the_first_are_refused(term: Term) -> None:
    model = Model(term)
    with pytest.raises(sambac.CompileError, match=OTHERWISE[term]):
        sambac.compile(model, TRAIN, inputs=(X,))
    assert (model.kept, model.made, model.number, model.first) == (None, None, None, True)
    assert (model.box.value, model.tensors, KEPT) == (None, [], {})


@pytest.mark.parametrize("term", WHATEVER_TRAINS, ids=lambda term: term.__name__)
def test_they_are_refused_where_nothing_trains(term: Term) -> None:
    with pytest.raises(sambac.CompileError, match=OTHERWISE[term]):
        sambac.compile(Model(term), INFER, inputs=(X,))


@pytest.mark.parametrize(
    "term", [in_an_attribute, in_a_buffer_of_none, in_a_cached_function, as_a_number]
)
def test_what_is_kept_of_parameters_is_right_where_nothing_trains(term: Term) -> None:
    model = Model(term)
    with sambarun.load(sambac.compile(model, INFER, inputs=(X,))) as executable:
        found = executable.run({"x": X.numpy()})["output"]
    assert_near(found, exactly(Model(term))(exactly(X)).detach().numpy())


@pytest.mark.parametrize("term", [another_formula_first, in_an_attribute, of_inputs])
def test_a_first_call_that_was_made_before_counts_no_more(term: Term) -> None:
    model = Model(term)
    model(X)
    trains_as_in_torch(model)


def made_anew(m: Model, x: torch.Tensor) -> torch.Tensor:
    m.kept = m.a.weight.norm()
    return m.kept * m.b.weight.sum()


def in_a_list_anew(m: Model, x: torch.Tensor) -> torch.Tensor:
    m.tensors = []
    m.tensors.append(m.a.weight.norm())
    m.tensors.append(x.abs().mean())
    return sum(m.tensors, torch.zeros(()))


def shown_of_inputs(m: Model, x: torch.Tensor) -> torch.Tensor:
    m.box.value = m.kept = m.a(x).abs().mean()
    return m.kept


def made_of_constants(m: Model, x: torch.Tensor) -> torch.Tensor:
    if m.kept is None:
        m.kept = torch.ones_like(x).tril() + m.table.cos()
    return (m.kept * m.a(x)).mean()


def on_the_device_of_an_input(m: Model, x: torch.Tensor) -> torch.Tensor:
    if m.kept is None or m.kept.shape != x.shape:
        m.kept = torch.arange(12.0).view(3, 4).type_as(x).to(x.device)
    return (m.kept.expand_as(x) * m.a(x)).mean()


def without_gradients(m: Model, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        m.kept = m.a.weight.norm()
        m.steps = 0.5 * m.steps + m.a(x).mean(0)
    return (m.kept * m.b.weight * m.steps).sum()


def under_autocast(m: Model, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16, enabled=False):
        m.kept = m.a(x)
    return m.kept.mean()


def in_a_branch(m: Model, x: torch.Tensor) -> torch.Tensor:
    m.kept = torch.cond(x.sum() > 100, lambda y: y * 2, lambda y: y + 1, (x[0],))
    return (m.kept * m.a(x)).mean()


def with_lots_of_torch(m: Model, x: torch.Tensor) -> torch.Tensor:
    m.kept = functional.dropout(m.a(x), 0.0) + torch.rand(4).detach() * 0
    return m.kept.mean()


@pytest.mark.parametrize(
    "term",
    [
        made_anew,
        in_a_list_anew,
        shown_of_inputs,
        made_of_constants,
        on_the_device_of_an_input,
        without_gradients,
        under_autocast,
        in_a_branch,
        with_lots_of_torch,
    ],
    ids=lambda term: term.__name__,
)
@pytest.mark.filterwarnings("ignore:The dropout of")
def test_what_each_call_makes_anew_trains_as_in_torch(term: Term) -> None:
    trains_as_in_torch(Model(term))


def test_lots_of_python_are_told() -> None:
    def drawn(m: Model, x: torch.Tensor) -> torch.Tensor:
        return m.b.weight.sum() if random.random() < 0.5 else m.a.weight.sum()

    with pytest.warns(UserWarning, match="draws random numbers of Python .* with torch"):
        sambac.compile(Model(drawn), TRAIN, inputs=(X,))


def test_what_an_object_keeps_of_inputs_is_told() -> None:
    def kept(m: Model, x: torch.Tensor) -> torch.Tensor:
        if m.box.value is None:
            m.box.value = x.mean()
        return m.box.value * m.b.weight.sum()

    with pytest.warns(UserWarning, match=r"keeps Model\.box\.value .* like the first call"):
        sambac.compile(Model(kept), TRAIN, inputs=(X,))


def test_models_without_weights_are_looked_at_too() -> None:
    with torch.device("meta"):
        anew, once = Model(made_anew), Model(in_an_attribute)
    sambac.compile(anew, TRAIN, inputs=(X,))
    with pytest.raises(sambac.CompileError, match=r"keeps Model\.kept .* what trains"):
        sambac.compile(once, TRAIN, inputs=(X,))
