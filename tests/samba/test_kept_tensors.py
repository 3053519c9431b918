"""Models that keep tensors from one call to the next: every tracing sees the model afresh."""

from __future__ import annotations

import functools
import threading
import warnings

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

import sambaflow.samba as samba
from sambac import CompileError
from sambaflow.samba import utils

_COUNTED = "forward changes values"
"""The models count their calls, to show that they are as they were: the compiler tells of that."""
pytestmark = pytest.mark.filterwarnings(f"ignore:{_COUNTED}")


class Cache:
    """Makes a tensor once, and gives the same one ever after."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tensors: dict[str, torch.Tensor] = {}

    def get_or_create(self, key, make):
        with self._lock:
            if key not in self._tensors:
                self._tensors[key] = make()
            return self._tensors[key]


CACHE = Cache()


@functools.lru_cache
def slopes(count: int) -> torch.Tensor:
    return torch.arange(float(count)) * 2


class Layer(nn.Module):
    """Scales by numbers that do not depend on its input; subclasses say where these are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.calls = 0
        self.kept: object = None

    def forward(self, x):
        self.calls += 1
        return (self.layer(x) * self.scale() + self.scale()).square().mean()

    def scale(self) -> torch.Tensor:
        raise NotImplementedError


class InAnAttribute(Layer):
    def scale(self):
        if self.kept is None:
            self.kept = torch.arange(4.0) * 2
        return self.kept


class InADict(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.kept = {}

    def scale(self):
        if "scale" not in self.kept:
            self.kept["scale"] = torch.arange(4.0) * 2
        return self.kept["scale"]


class InAListWithAFlag(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.kept, self.filled = [], False

    def scale(self):
        if not self.filled:
            self.kept.append(torch.arange(4.0) * 2)
            self.filled = True
        return self.kept[0]


class InAnObject(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.kept = Cache()

    def scale(self):
        return self.kept.get_or_create("scale", lambda: torch.arange(4.0) * 2)


class InAGlobal(Layer):
    def scale(self):
        return CACHE.get_or_create("scale", lambda: torch.arange(4.0) * 2)


class InACacheOfAFunction(Layer):
    def scale(self):
        return slopes(4)


KINDS = [InAnAttribute, InADict, InAListWithAFlag, InAnObject, InAGlobal, InACacheOfAFunction]


class Everywhere(nn.Module):
    """All of them in one model: the loss is their sum, and each is a result as well."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(kind() for kind in KINDS)

    def forward(self, x):
        each = [layer(x) for layer in self.layers]
        return sum(each), *each

    def calls(self):
        """Return how often layers were called, but for those that never were."""
        return {type(layer).__name__: layer.calls for layer in self.layers if layer.calls}


@pytest.fixture(autouse=True)
def _nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    CACHE._tensors.clear()
    slopes.cache_clear()


def made(kind):
    torch.manual_seed(0)
    return samba.from_torch_model(kind())


def fakes_in(value, seen=None):
    """Count the fake tensors that `value` holds, in collections and attributes at any depth."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        return int(isinstance(value, FakeTensor))
    if isinstance(value, dict):
        inside = [*value.values()]
    else:
        inside = (
            list(value) if isinstance(value, (list, tuple)) else [getattr(value, "__dict__", ())]
        )
        inside = [] if inside == [()] else inside
    return sum(fakes_in(item, seen) for item in inside)


@pytest.mark.parametrize("trains", [True, False])
def test_what_is_kept_is_made_anew_by_every_tracing(trains):
    model, x = made(Everywhere), samba.randn(3, 4, name="x")
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1) if trains else None
    for _ in range(2):
        pef = samba.session.compile(model, x, optimizer, name="kept")
        outputs = utils.trace_graph(model, x, optimizer, pef=pef)
    assert fakes_in([model, CACHE]) == 0
    assert not slopes.cache_info().currsize
    assert not model.calls()
    found = samba.session.run(x, outputs)
    same_numbers(found, model(x))  # with values, now that the host calls it


def test_what_the_host_has_made_serves_tracing_too():
    model, x = made(Everywhere), samba.randn(3, 4, name="x")
    wanted = model(x)
    before = [layer.kept for layer in model.layers]
    pef = samba.session.compile(model, x, name="kept")
    found = samba.session.run(x, utils.trace_graph(model, x, pef=pef))
    same_numbers(found, wanted)
    assert all(layer.kept is kept for layer, kept in zip(model.layers, before, strict=True))
    assert model.calls() == {kind.__name__: 1 for kind in KINDS}
    assert fakes_in([model, CACHE]) == 0


def same_numbers(found, wanted):
    names = ["total", *(kind.__name__ for kind in KINDS)]
    for name, mine, other in zip(names, found, wanted, strict=True):
        assert mine.item() == pytest.approx(other.item(), rel=1e-5), name


class Memory(nn.Module):
    """A state that goes on from call to call, which no program could follow."""

    def __init__(self, first=None) -> None:
        super().__init__()
        self.layer, self.state = nn.Linear(4, 4), first

    def forward(self, x):
        state = torch.zeros(3, 4) if self.state is None else self.state
        self.state = state * 0.5 + self.layer(x)
        return self.state.sum()


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize("first", [None, torch.zeros(3, 4)])
def test_a_state_that_goes_on_is_refused(first, trains):
    model = samba.from_torch_model(Memory(first))
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1) if trains else None
    with pytest.raises(CompileError, match=r"keeps Memory\.state from one call .* buffer"):
        samba.session.compile(model, samba.randn(3, 4, name="x"), optimizer, name="memory")
    assert model.state is first


class Counter(Memory):
    def forward(self, x):
        self.state = self.state + 1
        return self.layer(x) * self.state


def test_a_tensor_that_counts_calls_is_refused():
    model = samba.from_torch_model(Counter(torch.zeros(())))
    with pytest.raises(CompileError, match=r"a later call of Counter does not do .* buffers"):
        samba.session.compile(model, samba.randn(3, 4, name="x"), name="counter")


class OfTheInput(Layer):
    def forward(self, x):
        return self.layer(x) * CACHE.get_or_create("mean", lambda: x.mean())


def test_what_an_object_keeps_of_an_input_is_told():
    model, x = made(OfTheInput), samba.randn(3, 4, name="x")
    with pytest.warns(UserWarning, match=r"OfTheInput keeps CACHE\._tensors\.mean .* first call"):
        pef = samba.session.compile(model, x, name="mean")
    with pytest.warns(UserWarning, match="OfTheInput keeps"):
        outputs = utils.trace_graph(model, x, pef=pef)
    y = samba.randn(3, 4, name="x")
    (found,) = samba.session.run(y, outputs)
    torch.testing.assert_close(found.torch(), samba.to_torch(model.layer(y) * y.mean()))


def test_what_an_object_keeps_of_sizes_is_not_told():
    model, x = made(InAGlobal), samba.randn(3, 4, name="x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", _COUNTED)
        samba.session.compile(model, x, name="sizes")


class Wrong(nn.Module):
    """Fails behind a norm that counts batches."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.layer, self.calls = nn.BatchNorm1d(4), nn.Linear(5, 2), 0

    def forward(self, x):
        self.calls += 1
        return self.layer(self.norm(x))


def test_a_call_that_fails_leaves_the_model_as_it_was():
    model = samba.from_torch_model(Wrong())
    torch.manual_seed(3)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        samba.session.compile(model, samba.ones(3, 4, name="x"), name="wrong")
    assert model.norm.num_batches_tracked == 0
    assert not model.norm.running_mean.any()
    assert model.calls == 0


def test_a_model_for_inference_makes_tensors_of_its_own():
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.places = nn.Embedding(5, 4), torch.arange(5)

        def forward(self, x):
            return x + self.table(self.places) + self.table(torch.arange(5)) * torch.ones(4)

    model, x = samba.from_torch_model(Positions()), samba.randn(2, 5, 4, name="x")
    pef = samba.session.compile(model, x, name="places")
    (found,) = samba.session.run(x, utils.trace_graph(model, x, pef=pef))
    torch.testing.assert_close(found.torch(), samba.to_torch(model(x)))


class Attends(nn.Module):
    """Two layers of torch that look at values: whether a mask is causal, variances negative."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(8, 2)
        self.mask: torch.Tensor | None = None

    def forward(self, x, y):
        if self.mask is None or len(self.mask) != x.shape[1]:
            self.mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        mean, spread = self.head(self.encoder(x, mask=self.mask)).split(1, dim=-1)
        return nn.functional.gaussian_nll_loss(mean, y, spread.exp()), mean


@pytest.mark.parametrize("trains", [True, False])
def test_layers_of_torch_that_look_at_values_are_traced(trains):
    torch.manual_seed(0)
    model = samba.from_torch_model(Attends().train(trains))
    inputs = (samba.randn(2, 5, 8, name="x"), samba.randn(2, 5, 1, name="y"))
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1) if trains else None
    pef = samba.session.compile(model, inputs, optimizer, name="attends")
    found = samba.session.run(inputs, utils.trace_graph(model, inputs, optimizer, pef=pef))
    wanted = model(*inputs)
    assert [item.sn_name.rpartition("__outputs")[0] for item in found] == [
        "attends__gaussian_nll_loss",
        "attends__split",
    ]
    for mine, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine.torch(), samba.to_torch(other.detach()))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_shape_of_a_loss_that_looks_at_values(reduction):
    class Loss(nn.Module):
        def forward(self, x, y, rows, each):
            def loss(spread):
                return nn.functional.gaussian_nll_loss(x, y, spread, reduction=reduction)

            return loss(rows), loss(each), loss(0.5)

    x, y = samba.randn(3, 4, name="x"), samba.randn(3, 4, name="y")
    inputs = (x, y, samba.ones(3, name="rows"), samba.ones(3, 4, name="each"))
    pef = samba.session.compile(Loss(), inputs, name="loss")
    outputs = utils.trace_graph(Loss(), inputs, pef=pef)
    for mine, other in zip(samba.session.run(inputs, outputs), Loss()(*inputs), strict=True):
        torch.testing.assert_close(mine.torch(), samba.to_torch(other))


def test_what_is_returned_twice_is_one_tensor():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x):
            out = self.layer(x)
            return {"loss": out.square().mean(), "last": out, "all": (out, out.relu())}

    model, x = samba.from_torch_model(Twice()), samba.randn(5, 4, name="x")
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    pef = samba.session.compile(model, x, optimizer, name="twice")
    outputs = utils.trace_graph(model, x, optimizer, pef=pef)
    wanted = model(x)
    loss, last, again, _ = samba.session.run(x, outputs)
    assert last.sn_name == again.sn_name == "twice__layer__linear__outputs__0"
    torch.testing.assert_close(last.torch(), samba.to_torch(wanted["last"].detach()))
    assert torch.equal(last.torch(), again.torch())
    assert loss.item() == pytest.approx(wanted["loss"].item(), rel=1e-5)


def test_distributions_that_draw_are_traced(monkeypatch):
    # torch.compile turns it off for the whole process; other tests use it.
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)

    class Draws(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x):
            return torch.distributions.Normal(self.layer(x), 1e-3).rsample()

    model, x = samba.from_torch_model(Draws()), samba.randn(5, 4, name="x")
    pef = samba.session.compile(model, x, name="draws")
    outputs = utils.trace_graph(model, x, pef=pef)
    (found,), (other,) = samba.session.run(x, outputs), samba.session.run(x, outputs)
    assert not torch.equal(found.torch(), other.torch())
    torch.testing.assert_close(found.torch(), samba.to_torch(model.layer(x)), atol=1e-2, rtol=0)
    with pytest.raises(ValueError, match="to satisfy the constraint"):  # again as torch has it
        torch.distributions.Normal(torch.zeros(1), -torch.ones(1))
