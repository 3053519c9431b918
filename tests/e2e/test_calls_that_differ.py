"""Modules whose calls run the same functions on other things, or on the same things otherwise."""

from __future__ import annotations

import random
import types
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import pytest
import torch
from near import assert_near, exactly
from repeated_calls import TRAIN, X, trains_as_in_torch
from torch import nn

import sambac
import sambarun

Term = Callable[["Model", torch.Tensor], torch.Tensor]

pytestmark = pytest.mark.filterwarnings("ignore:forward changes values .*Model.turn = False;")


class Log:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.items: list[torch.Tensor] = []

    def append(self, item: torch.Tensor) -> None:
        self.items.append(item)


class Model(nn.Module):
    """A layer, whose results a function goes on from; `turn` is True in every other call."""

    masks = (torch.ones(4), torch.zeros(4))

    def __init__(self, term: Term) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer, self.lstm = nn.Linear(4, 4), nn.LSTM(4, 4, batch_first=True)
        self.left, self.right = torch.arange(4.0), torch.ones(4)
        self.rows = torch.eye(4)
        self.array = np.ones(4, "float32")
        self.calls: tuple[int, ...] = ()
        self.kept: torch.Tensor | None = None
        self.log = Log()
        self.turn, self.term = False, term

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.turn = not self.turn
        return self.term(self, x).square().mean()


def swapped(m: Model, x: torch.Tensor) -> torch.Tensor:
    m.left, m.right = m.right, m.left
    return m.layer(x) * m.left


def of_an_array(m: Model, x: torch.Tensor) -> torch.Tensor:
    m.array = m.array + 1
    return m.layer(x) * torch.tensor(m.array)


def of_the_memory_of_an_array(m: Model, x: torch.Tensor) -> torch.Tensor:
    m.array = m.array + 1
    return m.layer(x) * torch.from_numpy(m.array)


def beside_a_log(m: Model, x: torch.Tensor) -> torch.Tensor:
    m.log.append(m.layer(x).mean())
    return m.layer(x) * (2 if m.turn else 3)


def from_the_third_call_on(m: Model, x: torch.Tensor) -> torch.Tensor:
    m.calls = (*m.calls, 1)
    return m.layer(x) * 2 if len(m.calls) > 2 else m.layer(x)


DIFFERENCES: dict[str, Term] = {
    "slices": lambda m, x: m.layer(x)[:, :2] if m.turn else m.layer(x)[:, 2:],
    "dimensions": lambda m, x: m.layer(x)[..., 0] if m.turn else m.layer(x)[0],
    "new dimensions": lambda m, x: x * (m.left[None] if m.turn else m.left[:, None])[:1, :1],
    "positions": lambda m, x: torch.sub(2.0, m.layer(x)) if m.turn else torch.sub(m.layer(x), 2.0),
    "keywords": lambda m, x: torch.clamp(m.layer(x), **{"min" if m.turn else "max": 0.1}),
    "chunks": lambda m, x: m.layer(x).chunk(2, -1)[int(m.turn)],
    "results": lambda m, x: torch.stack(m.layer(x).aminmax(dim=0))[int(m.turn)],
    "states": lambda m, x: m.lstm(x[None])[1][int(m.turn)],
    "rows of weights": lambda m, x: x @ m.layer.weight.unbind(0)[int(m.turn)],
    "rows of constants": lambda m, x: m.layer(x) * m.rows[int(m.turn)],
    "attributes of the class": lambda m, x: m.layer(x) * m.masks[int(m.turn)],
    "types": lambda m, x: m.layer(x).to(torch.bfloat16 if m.turn else torch.float32).float(),
    "swapped": swapped,
    "of an array": of_an_array,
    "of the memory of an array": of_the_memory_of_an_array,
    "beside a log": beside_a_log,
    "gradients of views": lambda m, x: m.right * (m.layer(x).detach() if m.turn else m.layer(x)),
    "from the third call on": from_the_third_call_on,
}


@pytest.mark.filterwarnings("ignore:Model keeps Model.log")
@pytest.mark.parametrize("options", [TRAIN, None], ids=["train", "infer"])
@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_difference_is_refused(name: str, options: sambac.CompileOptions | None) -> None:
    model = Model(DIFFERENCES[name])
    with pytest.raises(sambac.CompileError, match=r"a later call of Model does not|Model keeps"):
        sambac.compile(model, options, inputs=(X,))
    assert (model.turn, model.calls) == (False, ())


def drawn_once(m: Model, x: torch.Tensor) -> torch.Tensor:
    if m.kept is None:
        m.kept = torch.randn(4).abs() + 1
    return m.layer(x) * m.kept


def a_layer_of_the_first_call(m: Model, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(m, "late"):
        m.late = nn.Linear(4, 4)
    return m.late(m.layer(x))


@pytest.mark.parametrize("options", [TRAIN, None], ids=["train", "infer"])
@pytest.mark.parametrize("term", [drawn_once, a_layer_of_the_first_call])
def test_random_numbers_that_are_kept_are_refused(
    term: Term, options: sambac.CompileOptions | None
) -> None:
    model = Model(term)
    with pytest.raises(sambac.CompileError, match=r"with random numbers, .* in __init__|late"):
        sambac.compile(model, options, inputs=(X,))
    assert model.kept is None
    assert not hasattr(model, "late")
    model(X)
    model.turn = False
    trains_as_in_torch(model)


def forked() -> None:
    with torch.random.fork_rng():
        torch.rand(1)


@pytest.mark.parametrize(
    ("reset", "name"),
    [
        (lambda: torch.manual_seed(3), "manual_seed"),
        (lambda: torch.random.manual_seed(3), "manual_seed"),
        (lambda: torch.seed(), "seed"),
        (lambda: torch.set_rng_state(torch.get_rng_state()), "set_rng_state"),
        (forked, "fork_rng"),
    ],
)
def test_seeds_in_a_call_are_refused(reset: Callable[[], object], name: str) -> None:
    def seeded(m: Model, x: torch.Tensor) -> torch.Tensor:
        reset()
        return m.layer(x) * torch.rand(4)

    with pytest.raises(sambac.CompileError, match=rf"calls torch\.{name}, which cannot"):
        sambac.compile(Model(seeded), TRAIN, inputs=(X,))


def test_what_another_call_than_forward_does_is_refused() -> None:
    class Calling(Model):
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return super().__call__(x) * 2

    with pytest.raises(sambac.CompileError, match=r"Calling has a __call__ of its own"):
        sambac.compile(Calling(lambda m, x: m.layer(x)), inputs=(X,))


def test_hooks_of_all_modules_are_a_part_of_the_call() -> None:
    calls: list[torch.Tensor] = []

    def hook(module: nn.Module, given: object, result: torch.Tensor) -> torch.Tensor | None:
        if isinstance(module, Model):
            calls.append(result.detach())
            return result * len(calls)
        return None

    handle = nn.modules.module.register_module_forward_hook(hook)
    try:
        with pytest.raises(sambac.CompileError, match="a later call of Model does not do"):
            sambac.compile(Model(lambda m, x: m.layer(x)), TRAIN, inputs=(X,))
    finally:
        handle.remove()


def test_collections_that_a_call_empties_come_to_each_call() -> None:
    class Popping(Model):
        def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
            wanted = batch.pop("y")
            return (self.layer(batch["x"]) - wanted).square().mean()

    batch = {"x": X, "y": X * 2}
    with sambarun.load(sambac.compile(Popping(bool), TRAIN, inputs=(batch,))) as executable:
        found = executable.step({"batch_x": X.numpy(), "batch_y": (X * 2).numpy()})["output"]
    assert_near(found, exactly(Popping(bool))({key: exactly(item) for key, item in batch.items()}))
    assert batch.keys() == {"x", "y"}


class Tables:
    """Keeps tables for all modules."""

    rows: ClassVar[dict[int, torch.Tensor]] = {}

    @classmethod
    def get(cls, size: int) -> torch.Tensor:
        if size not in cls.rows:
            cls.rows[size] = torch.arange(float(size))
        return cls.rows[size]


class Slots:
    """An object of the user's without a `__dict__`."""

    __slots__ = ("word",)

    def __init__(self) -> None:
        self.word = ""


class Going(Model):
    """A model with state of Python that goes on from call to call, of which nothing depends yet."""

    text = ""

    def __init__(self, step: Callable[[Going], object]) -> None:
        super().__init__(lambda m, x: m.layer(x))
        self.slots, self.words, self.names = Slots(), ["a", "b", "c"], {"a"}
        self.step = step
        self.lots, self.numbers = random.Random(0), np.random.default_rng(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.step(self)
        return self.layer(x)


def of_the_class(m: Going) -> None:
    Going.text += "a"


def of_slots(m: Going) -> None:
    m.slots.word += "a"


STATES: dict[Callable[[Going], object], str] = {
    of_the_class: r"changes values .*: Going\.text = ''",
    of_slots: r"changes values .*: Going\.slots\.word = ''",
    lambda m: m.words.append("d"): r"changes values .*: Going\.words\[5\];",
    lambda m: m.words.pop(): r"changes values .*: Going\.words\[0\] = 'a';",
    lambda m: m.names.add(str(len(m.names))): r"changes values .*: Going\.names\['3'\];",
    lambda m: m.lots.random(): "draws random numbers of Python",
    lambda m: m.numbers.random(): "draws random numbers of Python",
}


@pytest.mark.parametrize("step", STATES)
def test_states_of_python_that_go_on_are_told(step: Callable[[Going], object]) -> None:
    model = Going(step)
    with pytest.warns(UserWarning, match=STATES[step]):
        sambac.compile(model, inputs=(X,))
    assert (model.slots.word, model.words, model.names) == ("", ["a", "b", "c"], {"a"})
    Going.text = ""


def test_tensors_in_classes_and_slots_are_looked_at() -> None:
    def of_inputs(m: Model, x: torch.Tensor) -> torch.Tensor:
        if isinstance(m.log, Log):
            m.log = Slots()
            m.log.word = x.mean()
        return m.layer(x) * m.log.word

    with pytest.raises(sambac.CompileError, match=r"Model keeps Model\.log"):
        sambac.compile(Model(of_inputs), inputs=(X,))


def logged(m: Model, x: torch.Tensor) -> torch.Tensor:
    m.seen = types.SimpleNamespace(mean=m.layer(x).detach().mean())
    return m.layer(x)


def of_the_shape_of_a_row(m: Model, x: torch.Tensor) -> torch.Tensor:
    if m.kept is None:
        m.kept = torch.ones_like(m.layer(x)[:, 0])
    return m.layer(x) * m.kept[:, None]


def of_another_type(m: Model, x: torch.Tensor) -> torch.Tensor:
    if m.left.dtype != torch.float64:
        m.left = m.left.to(torch.float64)
    return m.layer(x) * m.left.float()


def of_a_table_elsewhere(m: Model, x: torch.Tensor) -> torch.Tensor:
    return m.layer(x) * Tables.get(4)


def of_a_new_tensor(m: Model, x: torch.Tensor) -> torch.Tensor:
    if m.kept is None:
        m.kept = torch.ones_like(input=x) + x.new(3, 4).zero_()
    return m.layer(x) * m.kept


def of_a_constant_array(m: Model, x: torch.Tensor) -> torch.Tensor:
    return m.layer(x) * torch.from_numpy(m.array * 3)


@pytest.mark.parametrize(
    "term",
    [
        logged,
        of_a_new_tensor,
        of_another_type,
        of_a_table_elsewhere,
        of_the_shape_of_a_row,
        of_a_constant_array,
        lambda m, x: m.lstm(x[None])[0],
    ],
)
def test_calls_that_are_alike_train_as_in_torch(term: Term) -> None:
    trains_as_in_torch(Model(term))


def test_a_log_is_told() -> None:
    def logged_each(m: Model, x: torch.Tensor) -> torch.Tensor:
        m.log.append(m.layer(x).detach().mean())
        return m.layer(x)

    with pytest.warns(UserWarning, match=r"keeps Model\.log\.items\[0\] .* return what is to be"):
        sambac.compile(Model(logged_each), inputs=(X,))


def test_numbers_that_settle_are_not_told() -> None:
    def settled(m: Model, x: torch.Tensor) -> torch.Tensor:
        m.size, m.shape = max(m.array.size, x.shape[0] + 2000), x.shape
        return m.layer(x)

    model = Model(settled)
    model.size = 0
    sambac.compile(model, inputs=(X,))


def test_counts_in_arrays_are_told() -> None:
    def counted(m: Model, x: torch.Tensor) -> torch.Tensor:
        m.array += 1
        return m.layer(x) * 0 if m.array[0] > 100 else m.layer(x)

    model = Model(counted)
    with pytest.warns(UserWarning, match=r"changes values .*Model\.array;"):
        sambac.compile(model, inputs=(X,))
    assert model.array.max() == 1


def test_open_sizes_that_a_call_fixes_are_those_of_later_calls() -> None:
    class Positions(Model):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x * 2) + self.rows

    dims = {"x": {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}}
    x = torch.randn(5, 4, 4)
    program = sambac.compile(Positions(bool), inputs=(x,), dynamic_shapes=dims)
    with sambarun.load(program) as executable:
        found = executable.run({"x": x.numpy()})["output"]
    assert_near(found, exactly(Positions(bool))(exactly(x)).detach().numpy())


@pytest.mark.filterwarnings("ignore:.torch.jit.trace:DeprecationWarning")
def test_parts_in_torchscript_are_told() -> None:
    model = Model(lambda m, x: m.layer(x))
    model.layer = torch.jit.trace(model.layer, X)
    with pytest.warns(UserWarning, match=r"parts in TorchScript \(layer\), so that its later"):
        sambac.compile(model, inputs=(X,))


def directional(m: Model, x: torch.Tensor) -> torch.Tensor:
    values, slopes = torch.func.jvp(lambda y: m.layer(y).sin(), (x,), (x.cos(),))
    return values * slopes


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # of PyTorch's own
def test_forward_derivatives_train_as_in_torch() -> None:
    trains_as_in_torch(Model(directional))


def test_the_state_of_random_numbers_is_that_of_one_call() -> None:
    def drawn(m: Model, x: torch.Tensor) -> torch.Tensor:
        return m.layer(x) * (1 + random.random() * 0)

    random.seed(5)
    with pytest.warns(UserWarning, match="draws random numbers of Python"):
        sambac.compile(Model(drawn), inputs=(X,))
    found = random.random()
    random.seed(5)
    random.random()
    assert found == random.random()
