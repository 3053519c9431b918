"""Modules built without values, and the values that they get."""

from __future__ import annotations

import copy
import math
import resource
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

from sambaflow.samba import lazy_param as lazy
from sambaflow.samba.lazy.rng import MultithreadedRNG, RNGProvider, RNGProviderFactory
from sambaflow.samba.materialize import materialize
from sambaflow.samba.nn.parameter import SambaParameter
from sambaflow.samba.tensors.tensor import SambaTensor


@pytest.fixture(autouse=True)
def _off_afterwards() -> Iterator[None]:
    yield
    lazy.disable_lazy_param()


def _built(make: type[nn.Module], seed: int = 0, **options: object) -> nn.Module:
    lazy.enable_lazy_param(seed=seed, **options)  # type: ignore[arg-type]
    try:
        return make()
    finally:
        lazy.disable_lazy_param()


def _values(model: nn.Module) -> dict[str, torch.Tensor]:
    return {
        name: value.torch_tensor() if isinstance(value, SambaTensor) else value.detach()
        for name, value in model.named_parameters()
    }


class _Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(300, 200)
        self.conv = nn.Conv2d(3, 8, 3)
        self.embedding = nn.Embedding(50, 16, padding_idx=7)
        self.norm = nn.BatchNorm2d(8)
        self.attention = nn.MultiheadAttention(16, 2)
        self.rnn = nn.LSTM(4, 4)


class _Inits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterDict()
        for name, function in _INITS.items():
            layer = nn.Linear(96, 64) if name != "dirac" else nn.Conv1d(16, 16, 3)
            function(layer.weight)
            self.weights[name] = layer.weight


_INITS = {
    "uniform": lambda w: nn.init.uniform_(w, -1, 3),
    "normal": lambda w: nn.init.normal_(w, 1.0, 0.1),
    "constant": lambda w: nn.init.constant_(w, 4.5),
    "kaiming uniform": nn.init.kaiming_uniform_,
    "kaiming normal": lambda w: nn.init.kaiming_normal_(w, mode="fan_out"),
    "xavier uniform": lambda w: nn.init.xavier_uniform_(w, gain=2.0),
    "xavier normal": nn.init.xavier_normal_,
    "truncated": lambda w: nn.init.trunc_normal_(w, 0.5, 0.2, 0.2, 0.9),
    "scaled": lambda w: w.data.normal_(mean=0.0, std=0.02).mul_(3).add_(1),
    "erfinv": lambda w: w.data.uniform_(-0.9, 0.9).erfinv_().clamp_(-1, 1),
    "exponential": lambda w: w.data.exponential_(2.0),
    "orthogonal": nn.init.orthogonal_,
    "dirac": nn.init.dirac_,
    "eye": nn.init.eye_,
    "sparse": lambda w: nn.init.sparse_(w, 0.25),
    "rows": lambda w: w.data[3:5].fill_(7),
    "column": lambda w: w.data.t()[1].zero_(),
    "numbers": lambda w: w.data.copy_(torch.arange(w.numel()).reshape(w.shape)),
}


def test_parameters_have_no_values_and_buffers_do() -> None:
    model = _built(_Layers)
    for parameter in model.parameters():
        assert isinstance(parameter, SambaParameter)
        assert parameter.requires_grad
        assert not parameter.has_data
        assert parameter.materializer_provided
    assert torch.equal(model.norm.running_var, torch.ones(8))  # type: ignore[arg-type]


def test_names_shapes_and_order_are_torchs() -> None:
    lazily = [(name, p.shape, p.dtype) for name, p in _built(_Layers).named_parameters()]
    assert lazily == [(name, p.shape, p.dtype) for name, p in _Layers().named_parameters()]


@pytest.mark.parametrize("name", _INITS)
def test_values_are_distributed_as_torchs(name: str) -> None:
    values = _values(_built(_Inits))[f"weights.{name}"]
    with torch.random.fork_rng():
        torch.manual_seed(1)
        torchs = _Inits().weights[name].detach()
    assert values.shape == torchs.shape
    spread = torchs.std().item()
    assert values.mean().item() == pytest.approx(torchs.mean().item(), abs=0.06 * spread + 1e-6)
    assert values.std().item() == pytest.approx(spread, rel=0.06, abs=1e-6)
    for q in (0.03, 0.1, 0.5, 0.9, 0.97):
        ours, theirs = values.quantile(q).item(), torchs.quantile(q).item()
        assert ours == pytest.approx(theirs, abs=0.12 * spread + 1e-6)


def test_values_far_out_stay_between_the_edges() -> None:
    """Where the distribution function has but a few different values left."""

    def far_out() -> nn.Module:
        layer = nn.Linear(9, 9)
        nn.init.trunc_normal_(layer.weight, 0.0, 1.0, 8.0, 8.2)
        return layer

    values = _values(_built(far_out))["weight"]  # type: ignore[arg-type]
    assert values.min() >= 8.0
    assert values.max() <= 8.2


def test_exact_initial_values_are_exact() -> None:
    values = _values(_built(_Inits))
    eager = _Inits().weights
    for name in ("constant", "dirac", "eye", "numbers"):
        assert torch.equal(values[f"weights.{name}"], eager[name].detach())
    assert torch.equal(values["weights.rows"][3:5], torch.full((2, 96), 7.0))
    assert values["weights.rows"][5].abs().max() < 1 / math.sqrt(96)
    assert not values["weights.column"][:, 1].any()
    assert (values["weights.sparse"] == 0).sum(0).eq(16).all()
    orthogonal = values["weights.orthogonal"]
    assert torch.allclose(orthogonal @ orthogonal.T, torch.eye(64), atol=1e-5)


def test_special_layers_are_initialised_as_they_say() -> None:
    values = _values(_built(_Layers))
    bound = 1 / math.sqrt(300)
    assert bound * 0.99 < values["linear.weight"].abs().max() <= bound
    assert not values["embedding.weight"][7].any()
    assert values["embedding.weight"][6].any()
    assert values["norm.weight"].eq(1).all()


@pytest.mark.parametrize("make", [_Layers, _Inits])
def test_equal_seeds_give_equal_values_for_any_number_of_threads(make: type[nn.Module]) -> None:
    torch.manual_seed(1)
    one = _values(_built(make, seed=5, init_threads=1))
    torch.manual_seed(2)
    model = _built(make, seed=5, init_threads=6)
    for _ in range(2):
        again = _values(model)
        assert all(torch.equal(one[name], again[name]) for name in one)


def test_other_seeds_give_other_values() -> None:
    one, two = (_values(_built(_Layers, seed=seed))["linear.weight"] for seed in (5, 6))
    assert not torch.equal(one, two)


def test_no_two_layers_get_the_same_values() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(9, 9), nn.Linear(9, 9)

    values = _values(_built(Two))
    assert not torch.equal(values["a.weight"], values["b.weight"])


def test_a_model_of_400_million_parameters_uses_no_memory() -> None:
    class Large(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(50_000, 4_000)
            self.linear = nn.Linear(20_000, 10_000)

    _built(_Layers)  # imports come first
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = _built(Large)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert sum(parameter.numel() for parameter in model.parameters()) > 400_000_000
    assert after - before < 20_000  # KiB; the values take 1,600,000


class _Made(nn.Module):
    """Parameters made in all kinds of ways."""

    def __init__(self) -> None:
        super().__init__()
        self.zeros = nn.Parameter(torch.zeros(2, 3))
        self.scaled = nn.Parameter(torch.randn(400, 50) * 0.02 + 1)
        self.steps = nn.Parameter(torch.linspace(0, 1, 5, dtype=torch.float64))
        self.numpy = nn.Parameter(torch.from_numpy(np.arange(3, dtype=np.float32)))
        self.transposed = nn.Parameter(torch.arange(6.0).reshape(2, 3).t())
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        before = nn.Parameter(torch.empty(4))
        nn.init.constant_(before, 3.0)
        self.before = before
        self.register_parameter("absent", None)
        self.register_buffer("derived", self.scaled.detach() * 2)
        self.plain = torch.ones(3)


def test_parameters_made_by_content() -> None:
    model = _built(_Made)
    values = _values(model)
    assert not values["zeros"].any()
    assert values["scaled"].mean().item() == pytest.approx(1, abs=1e-3)
    assert values["scaled"].std().item() == pytest.approx(0.02, rel=0.05)
    assert torch.equal(values["steps"], torch.linspace(0, 1, 5, dtype=torch.float64))
    assert torch.equal(values["numpy"], torch.arange(3.0))
    assert torch.equal(values["transposed"], torch.arange(6.0).reshape(2, 3).t())
    assert torch.equal(values["before"], torch.full((4,), 3.0))
    assert not model.frozen.requires_grad
    assert torch.equal(model.derived, values["scaled"] * 2)  # type: ignore[arg-type]
    assert torch.equal(model.plain, torch.ones(3))  # type: ignore[arg-type]


def test_tied_parameters_stay_tied() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Embedding(5, 3), nn.Linear(3, 5)
            self.outer.weight = self.inner.weight
            shared = nn.Parameter(torch.empty(2))
            self.one = self.two = shared
            nn.init.ones_(shared)

    model = _built(Tied)
    assert model.outer.weight is model.inner.weight  # type: ignore[union-attr]
    assert model.one is model.two
    assert torch.equal(_values(model)["one"], torch.ones(2))


def test_copies_begin_alike_and_go_their_own_way() -> None:
    class Copied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(4, 4)
            self.same = copy.deepcopy(self.one)
            self.other = copy.deepcopy(self.one)
            nn.init.zeros_(self.other.weight)

    values = _values(_built(Copied))
    assert torch.equal(values["one.weight"], values["same.weight"])
    assert values["one.weight"].any()
    assert not values["other.weight"].any()


def test_what_depends_on_values_gets_them() -> None:
    class Asking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.largest = self.linear.weight.abs().max().item()
            self.positive = bool(self.linear.bias.sum() > 100)

    model = _built(Asking)
    assert model.largest == model.linear.weight.torch_tensor().abs().max().item()
    assert model.positive is False


def test_conversion_keeps_what_was_recorded() -> None:
    with lazy.lazy_param():
        model = nn.Linear(30, 30)
        model.bfloat16()
    value = model.weight.torch_tensor()
    assert value.dtype == model.weight.dtype == torch.bfloat16
    assert value.float().std().item() == pytest.approx(1 / math.sqrt(90), rel=0.1)


def test_nothing_but_constructors_of_modules_is_lazy() -> None:
    with lazy.lazy_param():
        assert lazy.use_lazy_param()
        data = torch.randn(3)
        with lazy.paused():
            assert not lazy.use_lazy_param()
            eager = nn.Linear(2, 2)
        assert lazy.use_lazy_param()
    assert not lazy.use_lazy_param()
    assert not data.is_meta
    assert not eager.weight.is_meta
    assert not nn.Linear(2, 2).weight.is_meta


def test_materialize_gives_values_for_a_block() -> None:
    model = _built(_Layers, seed=3)
    expected = _values(model)
    weight = model.linear.weight
    with materialize(model) as inside:
        assert inside is model
        assert model.linear.weight is weight
        assert torch.equal(weight.data, expected["linear.weight"])  # type: ignore[arg-type]
        with torch.no_grad():
            model.conv.weight.add_(1)  # type: ignore[union-attr, operator]
    assert weight.is_meta
    assert torch.equal(weight.torch_tensor(), expected["linear.weight"])
    assert torch.equal(model.conv.weight.data, expected["conv.weight"] + 1)  # type: ignore[union-attr, arg-type]


def test_initialisation_is_recorded_when_torchs_functions_are_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As transformers does, to leave parameters alone that were loaded."""
    original = nn.init.normal_

    def normal_(tensor: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
        return original(tensor, *args, **kwargs)  # type: ignore[arg-type]

    class Replaced(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(100, 10)
            nn.init.normal_(self.embedding.weight, mean=0.0, std=0.02)

    monkeypatch.setattr(nn.init, "normal_", normal_)
    assert _values(_built(Replaced))["embedding.weight"].std().item() < 0.03


def test_values_that_a_result_needs_stay() -> None:
    model = _built(_Layers)
    with materialize(model):
        result = model.linear(torch.ones(300))  # type: ignore[operator]
    result.sum().backward()
    assert model.linear.weight.grad.eq(1).all()  # type: ignore[union-attr, operator]
    assert model.rnn.weight_ih_l0.is_meta  # type: ignore[union-attr, operator]


def test_a_parameter_that_got_a_gradient_keeps_its_values() -> None:
    model = _built(_Layers)
    with materialize(model):
        model.linear.weight.grad = torch.ones(200, 300)  # type: ignore[union-attr]
    assert not model.linear.weight.is_meta  # type: ignore[union-attr]
    assert model.linear.bias.is_meta  # type: ignore[union-attr]


def test_a_forward_pass_in_the_block() -> None:
    model = _built(_Made)
    with materialize(model):
        assert (model.zeros + 1).sum().item() == 6  # type: ignore[operator]


@pytest.mark.parametrize(
    "materializer",
    [
        lambda p: torch.full(p.shape, 2.0, dtype=p.dtype),
        lambda p, rng: rng.uniform(2.0, 2.0, p.shape),
        lambda shape, dtype, requires_grad: torch.full(shape, 2.0, dtype=dtype),
    ],
    ids=["tensor", "tensor and numbers", "shape and type"],
)
def test_materializers_of_every_form(materializer: object) -> None:
    parameter = SambaParameter(
        shape=iter((2, 3)),
        dtype=torch.bfloat16,
        materializer=materializer,
        requires_grad=False,
    )
    assert torch.equal(parameter.torch_tensor(), torch.full((2, 3), 2.0, dtype=torch.bfloat16))


def test_a_materializer_with_random_numbers_of_its_own() -> None:
    class Normal:
        def __init__(self, rng_provider: RNGProvider) -> None:
            self.rng_provider = rng_provider

        def __call__(self, p: SambaParameter) -> torch.Tensor:
            return self.rng_provider().normal(0.0, 0.5, p.shape, dtype=p.dtype)

    made = Normal(RNGProviderFactory().build_provider())
    parameter = SambaParameter(shape=(3,), dtype=torch.float32, materializer=made)  # type: ignore[arg-type]
    assert torch.equal(parameter.torch_tensor(), parameter.torch_tensor())


def test_a_materializer_of_the_wrong_shape_is_told() -> None:
    def wrong(p: SambaTensor, rng: MultithreadedRNG) -> torch.Tensor:
        return torch.zeros(3)

    parameter = SambaTensor(shape=(2,), dtype=torch.float32, name="w", materializer=wrong)
    with pytest.raises(RuntimeError, match=r"w made a tensor of shape \(3,\), expected \(2,\)"):
        parameter.torch_tensor()


def test_a_tensor_without_values_and_materializer_is_told() -> None:
    with pytest.raises(RuntimeError, match="w has no data, and no materializer"):
        SambaTensor(shape=(2,), dtype=torch.float32, name="w").torch_tensor()
