"""Optimizers: steps on the host, what they are for the compiler, and their state."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator

import pytest
import torch
from near import assert_near, exactly
from torch import nn

import sambac
import sambarun
from sambaflow.samba import optim
from sambaflow.samba.compile.requests import settings_of
from sambaflow.samba.errors import SambaError
from sambaflow.samba.optim.settings import KINDS
from sambaflow.samba.optim.state import named_states
from sambaflow.samba.tensors.tensor import SambaParameter, SambaTensor
from sambaflow.sambacollections import OrderedSet

_ADAM = {"lr": 0.05, "eps": 1e-6, "weight_decay": 0.1}

_MADE: dict[str, Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
    "dampening": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
    "adam": lambda p: optim.Adam(p, **_ADAM),
    "adamw": lambda p: optim.AdamW(p, **_ADAM, argin_region_name="decoder"),
    "sparse_adamw": lambda p: optim.SparseAdamW(p, **_ADAM),
    "torch_adamw": lambda p: torch.optim.AdamW(p, **_ADAM, amsgrad=True),
    "torch_adam": lambda p: torch.optim.Adam(p, **_ADAM, decoupled_weight_decay=True),
    "rmsprop": lambda p: optim.RMSprop(p, 0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: optim.Adagrad(p, 0.05, lr_decay=0.1, initial_accumulator_value=0.1),
    "lamb": lambda p: optim.LAMB(p, 0.05, weight_decay=0.1),
    "lars": lambda p: optim.LARS(p, 0.5, weight_decay=0.1, trust=0.1),
}
"""One of each, over one layer of a model each."""


class _Branches(nn.Module):
    """A layer for each optimizer; their losses are added up."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({name: nn.Linear(4, 3) for name in _MADE})

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        losses = [nn.functional.mse_loss(torch.tanh(layer(x)), y) for layer in self.layers.values()]
        return torch.stack(losses).sum()


def _paths(model: nn.Module) -> dict[int, str]:
    return {id(parameter): path for path, parameter in model.named_parameters()}


def test_every_kind_steps_alike_on_the_host_and_compiled() -> None:
    torch.manual_seed(0)
    model = _Branches()
    optimizers = [make(model.layers[name].parameters()) for name, make in _MADE.items()]
    x, y = torch.randn(5, 4), torch.randn(5, 3)
    settings = settings_of(optimizers, _paths(model))
    options = sambac.CompileOptions(train=True, optimizers=settings.optimizers)
    executable = sambarun.load(sambac.compile(model, options, inputs=(x, y)))
    host = exactly(model)
    twins = [make(host.layers[name].parameters()) for name, make in _MADE.items()]
    for _ in range(3):
        executable.step({"x": x.numpy(), "y": y.numpy()})
        host.zero_grad()
        host(x.double(), y.double()).backward()
        for optimizer in twins:
            optimizer.step()
    device = executable.state()
    for name, parameter in host.named_parameters():
        # Some divide by the root of what is near 0.
        assert_near(device[name], parameter, 5e-5, what=name)
    compared = set()
    for name, tensor in _states(host, *twins):
        if name in device:
            # What counts steps has another type here; it is a float in torch.
            assert_near(device[name], tensor.double(), what=name)
            compared.add(name)
    # All that the program keeps is known on the host, but for the steps that dampening counts, and
    # the momentum that a run may still set.
    kept = {name for name in device if name not in dict(model.named_parameters())}
    assert kept - compared == {
        f"{_name_of(settings, 'layers.dampening.weight')}__step",
        *(f"layers.sgd.{name}__momentum_buffer" for name in ("weight", "bias")),
    }


def _states(
    model: nn.Module, *optimizers: torch.optim.Optimizer
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the state of `optimizers` under its names in a PEF."""
    return named_states(optimizers, {id(p): name for name, p in model.named_parameters()})


def _name_of(settings: object, parameter: str) -> str:
    (found,) = (item.name for item in settings.optimizers if parameter in item.params)  # type: ignore[attr-defined]
    return str(found)


def test_argins_are_called_after_region_or_kind() -> None:
    model = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
    one, two, three = (list(layer.parameters()) for layer in model)
    groups = [{"params": one}, {"params": two[:1], "lr": 0.5}]
    optimizers = [
        optim.AdamW(groups, lr=0.1, argin_region_name="top"),
        optim.SGD(two[1:], lr=0.2),
        torch.optim.SGD(three, lr=torch.tensor(0.25), momentum=0.5),
    ]
    settings = settings_of(optimizers, _paths(model)).optimizers
    assert [item.name for item in settings] == ["top.0", "top.1", "sgd.0", "sgd.1"]
    assert [item.lr for item in settings] == [0.1, 0.5, 0.2, 0.25]  # type: ignore[attr-defined]
    assert [item.params for item in settings] == [
        ("0.weight", "0.bias"),
        ("1.weight",),
        ("1.bias",),
        ("2.weight", "2.bias"),
    ]
    alone = settings_of(optimizers[2:], _paths(model)).optimizers
    assert alone[0].name == "sgd.1"


def test_options_reach_the_compiler() -> None:
    layer = nn.Linear(2, 2)
    (made,) = settings_of([optim.AdamW(layer.parameters())], _paths(layer)).optimizers
    assert made == sambac.AdamW(
        params=("weight", "bias"),
        name="adamw",
        lenient=True,
        lr=1e-3,
        beta2=0.997,
        weight_decay=0.0,
    )


def test_frozen_and_foreign_parameters_are_left_out() -> None:
    layer, other = nn.Linear(2, 2), nn.Linear(2, 2)
    layer.bias.requires_grad_(False)
    both = optim.SGD([*layer.parameters(), *other.parameters()], lr=0.1)
    (made,) = settings_of([both], _paths(layer)).optimizers
    assert made.params == ("weight",)


def test_one_norm_for_all() -> None:
    layer = nn.Linear(2, 2)
    clipped = optim.SGD([layer.weight], lr=0.1, max_grad_norm=2.0)
    assert settings_of([clipped], _paths(layer)).max_grad_norm == 2.0
    assert settings_of([], {}).max_grad_norm is None
    with pytest.raises(SambaError, match=r"max_grad_norm 2\.0 and None"):
        settings_of([clipped, torch.optim.SGD([layer.bias], lr=0.1)], _paths(layer))


class _Other(torch.optim.SGD):
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        """Do nothing."""


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: torch.optim.NAdam(p), "NAdam cannot be compiled; use one of SGD, AdamW"),
        (lambda p: _Other(p, lr=0.1), "_Other cannot be compiled"),
        (lambda p: torch.optim.SGD(p, lr=0.1, maximize=True), "SGD has maximize=True"),
        (lambda p: optim.SGD([nn.Parameter(torch.ones(1))]), "no parameter of SGD belongs to"),
    ],
)
def test_what_cannot_be_compiled_is_refused(
    make: Callable[[object], torch.optim.Optimizer], words: str
) -> None:
    layer = nn.Linear(2, 2)
    with pytest.raises(SambaError, match=words):
        settings_of([make(layer.parameters())], _paths(layer))


def test_copies_in_float32_are_the_hosts_alone() -> None:
    layer = nn.Linear(2, 2, dtype=torch.bfloat16)
    wide = optim.AdamW(layer.parameters(), fp32_params=True)
    with pytest.warns(UserWarning, match="rounds them to the type of the parameters"):
        settings_of([wide], _paths(layer))


@pytest.mark.parametrize("ordered", [list, tuple, iter, OrderedSet])
def test_parameters_come_in_any_ordered_form(ordered: Callable[..., object]) -> None:
    layer = nn.Linear(2, 2)
    made = optim.SGD(ordered(list(layer.parameters())), lr=0.1)  # type: ignore[arg-type]
    made.add_param_group({"params": ordered([nn.Parameter(torch.ones(1))]), "lr": 0.5})
    first, second = made.param_groups
    assert [id(p) for p in first["params"]] == [id(p) for p in layer.parameters()]
    assert second["lr"] == 0.5
    adamw = optim.AdamW(ordered(list(layer.parameters())))  # type: ignore[arg-type]
    adamw.add_param_group({"params": ordered([nn.Parameter(torch.ones(1))]), "lr": 0.5})
    assert [group["lr"] for group in adamw.param_groups] == [1e-3, 0.5]


@pytest.mark.parametrize("kind", [optim.SGD, optim.AdamW, optim.LAMB, optim.LARS, optim.RMSprop])
def test_samba_parameters_step_like_plain_ones(kind: type) -> None:
    start, gradient = torch.randn(3, 2), torch.randn(3, 2)
    plain, samba = nn.Parameter(start.clone()), SambaParameter(start.clone())
    for parameter in (plain, samba):
        optimizer = kind([parameter], lr=0.1, weight_decay=0.1)
        for _ in range(2):
            parameter.grad = gradient.clone()
            optimizer.step()
        assert type(parameter) in (nn.Parameter, SambaParameter)
        state = optimizer.state[parameter].values()
        assert not any(isinstance(value, SambaTensor) for value in state)
        optimizer.zero_grad()
        assert parameter.grad is None
    assert torch.equal(plain, samba.data)
    assert not torch.equal(plain, start)


def test_gradients_are_clipped_to_the_norm_before_a_step() -> None:
    weight = nn.Parameter(torch.zeros(4))
    optimizer = optim.SGD([weight], lr=1.0, max_grad_norm=0.5)
    weight.grad = torch.full((4,), 3.0)
    optimizer.step()
    assert weight.norm().item() == pytest.approx(0.5, rel=1e-5)


def test_a_closure_gives_loss_and_gradients() -> None:
    weight = nn.Parameter(torch.ones(1))
    optimizer = optim.SGD([weight], lr=0.1, max_grad_norm=0.5)
    optimizer.register_step_pre_hook(lambda *_: calls.append(1))
    calls: list[int] = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (weight * 3).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    assert optimizer.step(closure).item() == 3.0  # type: ignore[attr-defined]
    assert weight.item() == pytest.approx(1 - 0.1 * 0.5)
    assert calls == [1]


def test_schedules_of_torch_work() -> None:
    weight = nn.Parameter(torch.ones(1))
    optimizer = optim.AdamW([weight], lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    weight.grad = torch.ones(1)
    optimizer.step()
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_float32_copies_keep_small_steps() -> None:
    narrow = nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    kept = nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    for parameter, wide in ((narrow, False), (kept, True)):
        optimizer = optim.SGD([parameter], lr=1e-3, fp32_params=wide)
        for _ in range(10):
            parameter.grad = torch.ones(1, dtype=torch.bfloat16)
            optimizer.step()
            assert parameter.dtype == torch.bfloat16
    assert narrow.item() == 1.0
    assert kept.item() == pytest.approx(0.99, abs=3e-3)


def test_sparse_gradients_count_as_dense_ones() -> None:
    tables = [nn.Embedding(5, 2, sparse=sparse) for sparse in (True, False)]
    tables[1].load_state_dict(tables[0].state_dict())
    before = tables[0].weight.detach().clone()
    for table in tables:
        optimizer = optim.SparseAdamW(table.parameters(), lr=0.1, max_grad_norm=None)
        for rows in ([0, 1], [1, 2]):
            optimizer.zero_grad()
            table(torch.tensor(rows)).sum().backward()
            optimizer.step()
    assert torch.equal(tables[0].weight, tables[1].weight)
    assert not torch.equal(tables[0].weight, before)


def test_state_goes_through_dictionaries_copies_and_pickles() -> None:
    weight = nn.Parameter(torch.ones(3))
    optimizer = optim.AdamW([weight], lr=0.1, max_grad_norm=2.0, argin_region_name="a")
    weight.grad = torch.ones(3)
    optimizer.step()
    other = optim.AdamW([weight])
    other.load_state_dict(optimizer.state_dict())
    assert other.param_groups[0]["lr"] == 0.1
    assert torch.equal(other.state[weight]["exp_avg"], optimizer.state[weight]["exp_avg"])
    for same in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert same.max_grad_norm == 2.0
        assert same.argin_region_name == "a"


def test_state_is_made_complete_before_the_first_step() -> None:
    torch.manual_seed(0)
    model = _Branches()
    torchs = copy.deepcopy(model)
    for asked, network in ((True, model), (False, torchs)):
        for name, make in _MADE.items():
            if name == "dampening":
                continue
            optimizer = make(network.layers[name].parameters())
            if asked:
                list(_states(network, optimizer))
            network.zero_grad()
            network(torch.ones(2, 4), torch.ones(2, 3)).backward()
            optimizer.step()
    for one, two in zip(model.parameters(), torchs.parameters(), strict=True):
        assert torch.equal(one, two)


def test_state_of_parameters_without_values() -> None:
    weight = SambaParameter(shape=(2, 3), dtype=torch.float32)
    model = nn.Module()
    model.weight = weight
    states = dict(_states(model, optim.AdamW(model.parameters())))
    assert list(states) == ["weight__exp_avg", "weight__exp_avg_sq", "adamw__step"]
    assert torch.equal(states["weight__exp_avg"], torch.zeros(2, 3))


@pytest.mark.parametrize("norm", [0.0, -1.0, float("nan")])
def test_a_norm_that_makes_no_sense_is_refused(norm: float) -> None:
    with pytest.raises(ValueError, match="expected a number above 0 or None"):
        optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1, max_grad_norm=norm)


def test_state_of_the_device_needs_a_device() -> None:
    with pytest.raises(SambaError, match="no PEF is loaded"):
        optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1).cpu()


def test_every_kind_is_one_of_the_compilers() -> None:
    assert {kind.name for kind in KINDS} == set(sambac.optimizers.OPTIMIZERS)
