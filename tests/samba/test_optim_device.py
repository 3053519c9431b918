"""Optimizers on the device beside torch's in float64: state, checkpoints, schedules, groups."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from near import assert_near, exactly
from torch import Tensor, nn

import sambaflow.samba as samba
from sambaflow.samba import optim, utils


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.mse_loss(self.second(torch.tanh(self.first(x))), y)


def _batches(count: int, seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(6, 4, generator=generator), torch.randn(6, 3, generator=generator))
        for _ in range(count)
    ]


def _named(batch: tuple[Tensor, Tensor]) -> tuple[samba.SambaTensor, ...]:
    return tuple(samba.SambaTensor(t, name=n) for t, n in zip(batch, "xy", strict=True))


def _nets() -> tuple[nn.Module, nn.Module]:
    """Return a model that samba converted, and its twin for the host, of float64."""
    torch.manual_seed(0)
    model = _Net()
    host = exactly(model)
    return samba.from_torch_model(model), host


@dataclass(frozen=True)
class _Device:
    """A model and its optimizers on the device."""

    model: nn.Module
    optimizers: Sequence[torch.optim.Optimizer]
    outputs: Sequence[samba.SambaTensor]

    @classmethod
    def of(cls, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], folder: Path):
        """Compile the model into `folder`, unless it is there already, and trace it."""
        inputs, config = _named(_batches(1)[0]), {"output_folder": str(folder)}
        pef = next(map(str, folder.rglob("*.pef")), None)
        if pef is None:
            pef = samba.session.compile(model, inputs, optimizers, config_dict=config)
        return cls(model, optimizers, utils.trace_graph(model, inputs, optimizers, pef=pef))

    def train(
        self,
        batches: Sequence[tuple[Tensor, Tensor]],
        settings: Callable[[], Mapping[str, float]] = dict,
        then: Callable[[], object] = lambda: None,
    ) -> None:
        for batch in batches:
            samba.session.run(_named(batch), self.outputs, hyperparam_dict=settings())
            then()

    def fetch(self) -> None:
        samba.session.to_cpu(self.model, self.optimizers)


def _train(
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    batches: Sequence[tuple[Tensor, Tensor]],
    then: Callable[[], object] = lambda: None,
) -> None:
    """Train on the host."""
    dtype = next(model.parameters()).dtype
    for batch in batches:
        for optimizer in optimizers:
            optimizer.zero_grad()
        model(*(item.to(dtype) for item in batch)).backward()
        for optimizer in optimizers:
            optimizer.step()
        then()


def _same_weights(ours: nn.Module, theirs: nn.Module) -> None:
    for (name, our), their in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert_near(our.data, their.data, what=name)


def _same_state(
    ours: Mapping[str, object], theirs: Mapping[str, object], *, counted: bool = True
) -> None:
    """Compare what `state_dict` returns: the state of each parameter, and options of groups.

    The device counts the steps where a formula needs the number. It keeps float32, as torch does
    where the parameters are of that type.
    """
    assert ours["state"].keys() == theirs["state"].keys()
    for number, state in theirs["state"].items():
        assert ours["state"][number].keys() == state.keys()
        for key, value in state.items():
            our = ours["state"][number][key]
            assert our.dtype is torch.float32, key
            if key != "step" or counted:
                assert_near(our, value.double(), what=key)
    for our, their in zip(ours["param_groups"], theirs["param_groups"], strict=True):
        assert our == their


_SHARED = {"lr": 0.05, "weight_decay": 0.1}
_ADAM = {**_SHARED, "betas": (0.8, 0.95), "eps": 1e-6}
_KINDS: dict[str, tuple[type, type, dict[str, object]]] = {
    "sgd": (optim.SGD, torch.optim.SGD, {"lr": 0.1}),
    "momentum": (optim.SGD, torch.optim.SGD, {**_SHARED, "momentum": 0.9}),
    "nesterov": (optim.SGD, torch.optim.SGD, {**_SHARED, "momentum": 0.9, "nesterov": True}),
    "adam": (optim.Adam, torch.optim.Adam, _ADAM),
    "adamw": (optim.AdamW, torch.optim.AdamW, _ADAM),
    "amsgrad": (optim.AdamW, torch.optim.AdamW, {**_ADAM, "amsgrad": True}),
    "adagrad": (optim.Adagrad, torch.optim.Adagrad, {**_SHARED, "lr_decay": 0.1}),
    "rmsprop": (optim.RMSprop, torch.optim.RMSprop, {**_SHARED, "momentum": 0.5}),
    "centered": (optim.RMSprop, torch.optim.RMSprop, {**_SHARED, "centered": True}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a folder for each kind of optimizer: tests of one kind share what is compiled.

    It holds no weights.
    """
    return tmp_path_factory.mktemp("kinds")


@pytest.mark.parametrize("kind", _KINDS)
def test_state_after_training_on_the_device_is_that_of_torch(kind: str, folder: Path) -> None:
    make, make_host, options = _KINDS[kind]
    model, host = _nets()
    ours, theirs = make(model.parameters(), **options), make_host(host.parameters(), **options)
    device = _Device.of(model, [ours], folder / kind)
    device.train(_batches(4))
    device.fetch()
    _train(host, [theirs], _batches(4))
    _same_weights(model, host)
    _same_state(ours.state_dict(), theirs.state_dict(), counted=make is not optim.RMSprop)
    # Torch goes on with what came from the device, and the host with it as well.
    twin = _nets()[1]
    twin.load_state_dict(model.state_dict())
    further = make_host(twin.parameters(), **options)
    further.load_state_dict(copy.deepcopy(ours.state_dict()))
    for net, optimizer in ((twin, further), (host, theirs), (model, ours)):
        _train(net, [optimizer], _batches(3, seed=1))
    _same_weights(twin, host)
    _same_weights(model, host)


@pytest.mark.parametrize("kind", ["momentum", "amsgrad", "adagrad", "centered"])
@pytest.mark.parametrize("when", ["before tracing", "after tracing"])
def test_training_goes_on_from_a_checkpoint_of_torch(
    kind: str, when: str, folder: Path, tmp_path: Path
) -> None:
    make, make_host, options = _KINDS[kind]
    model, host = _nets()
    first = copy.deepcopy(host).float()
    before = make_host(first.parameters(), **options)
    _train(first, [before], _batches(3))
    torch.save((first.state_dict(), before.state_dict()), tmp_path / "checkpoint")
    weights, state = torch.load(tmp_path / "checkpoint")
    theirs = make_host(host.parameters(), **options)
    host.load_state_dict(weights)
    theirs.load_state_dict(copy.deepcopy(state))
    ours = make(model.parameters(), **options)
    if when == "before tracing":
        model.load_state_dict(weights)
        ours.load_state_dict(state)
    device = _Device.of(model, [ours], folder / kind)
    if when == "after tracing":
        device.train(_batches(2, seed=2))
        model.load_state_dict(weights)
        ours.load_state_dict(state)
        samba.session.to_rdu(model, [ours])
    device.train(_batches(3, seed=1))
    device.fetch()
    _train(host, [theirs], _batches(3, seed=1))
    _same_weights(model, host)
    _same_state(ours.state_dict(), theirs.state_dict(), counted=make is not optim.RMSprop)


def test_a_schedule_of_torch_sets_the_rate_of_runs(tmp_path: Path) -> None:
    model, host = _nets()
    ours, theirs = (
        optim.AdamW(model.parameters(), **_ADAM),
        torch.optim.AdamW(host.parameters(), **_ADAM),
    )
    schedules = [
        torch.optim.lr_scheduler.SequentialLR(
            optimizer,
            [
                torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2),
                torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4),
            ],
            [2],
        )
        for optimizer in (ours, theirs)
    ]
    device = _Device.of(model, [ours], tmp_path)
    rates: list[float] = []

    def rate() -> Mapping[str, float]:
        rates.append(ours.param_groups[0]["lr"])
        return {"lr": rates[-1]}

    device.train(_batches(6), rate, schedules[0].step)
    device.fetch()
    _train(host, [theirs], _batches(6), schedules[1].step)
    assert len({*rates}) == 6
    _same_weights(model, host)
    _same_state(ours.state_dict(), theirs.state_dict())


def test_groups_have_rates_of_their_own_and_a_schedule_sets_each(tmp_path: Path) -> None:
    def groups(net: nn.Module) -> list[dict[str, object]]:
        return [
            {"params": net.first.parameters(), "lr": 0.2, "weight_decay": 0.0},
            {"params": [net.second.weight]},
            {"params": [net.second.bias], "momentum": 0.0, "nesterov": False},
        ]

    options = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1, "nesterov": True}
    model, host = _nets()
    ours, theirs = optim.SGD(groups(model), **options), torch.optim.SGD(groups(host), **options)
    schedules = [torch.optim.lr_scheduler.ExponentialLR(item, 0.5) for item in (ours, theirs)]
    device = _Device.of(model, [ours], tmp_path)
    device.train(
        _batches(3),
        lambda: {f"sgd.{i}.lr": group["lr"] for i, group in enumerate(ours.param_groups)},
        schedules[0].step,
    )
    device.fetch()
    _train(host, [theirs], _batches(3), schedules[1].step)
    _same_weights(model, host)
    _same_state(ours.state_dict(), theirs.state_dict())


def test_an_optimizer_fetches_its_own_state_alone(tmp_path: Path) -> None:
    model, host = _nets()

    def pair(net: nn.Module, kind: type) -> list[torch.optim.Optimizer]:
        return [kind(part.parameters(), **_ADAM) for part in (net.first, net.second)]

    ours, theirs = pair(model, optim.AdamW), pair(host, torch.optim.AdamW)
    _Device.of(model, ours, tmp_path).train(_batches(2))
    ours[0].cpu()  # type: ignore[attr-defined]
    _train(host, theirs, _batches(2))
    _same_state(ours[0].state_dict(), theirs[0].state_dict())
    assert all(state["step"] == 0 for state in ours[1].state.values())
    assert not torch.allclose(model.first.weight.data, host.first.weight.float())


class _Partly(nn.Module):
    """A layer whose gradient is lost in one of several ways, beside one that is trained."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.first, self.idle = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor, y: Tensor) -> object:
        out = self.first(x)
        if self.way == "detached":
            out = out + self.idle(x).detach()
        loss = nn.functional.mse_loss(out, y)
        if self.way == "chosen":
            return loss, self.idle(x).argmax(1)
        return loss


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("way", ["unused", "detached", "chosen"])
def test_parameters_without_a_gradient_stay_as_they_are(
    way: str, own: bool, tmp_path: Path
) -> None:
    """As in torch: they decay as little as they are trained, in a group of their own too."""
    torch.manual_seed(0)
    model = _Partly(way)
    host = exactly(model)
    samba.from_torch_model_(model)

    def made(net: nn.Module, kind: type) -> list[torch.optim.Optimizer]:
        parts = [net.first, net.idle] if own else [net]
        options = {"lr": 0.1, "betas": (0.9, 0.99), "weight_decay": 0.5}
        return [kind(part.parameters(), **options) for part in parts]

    ours = made(model, optim.AdamW)
    device = _Device.of(model, ours, tmp_path)
    device.train(_batches(2))
    device.fetch()
    theirs = made(host, torch.optim.AdamW)
    for batch in _batches(2):
        for optimizer in theirs:
            optimizer.zero_grad()
        found = host(*exactly(batch))
        (found[0] if isinstance(found, tuple) else found).backward()
        for optimizer in theirs:
            optimizer.step()
    _same_weights(model, host)
    for our, their in zip(ours, theirs, strict=True):
        _same_state(our.state_dict(), their.state_dict())
    with pytest.raises(samba.SambaError, match=r"no gradient of '_partly__idle__weight'.*no loss"):
        _ = model.idle.weight.sn_grad


@pytest.mark.parametrize("kind", ["momentum", "adamw", "adagrad"])
def test_states_of_parameters_without_a_gradient_are_those_of_torch(
    kind: str, tmp_path: Path
) -> None:
    """None where there was none; where a checkpoint has some, that."""
    make, make_host, options = _KINDS[kind]
    torch.manual_seed(0)
    model, trained = _Partly("unused"), _Partly("detached")
    host = exactly(model)
    trained.load_state_dict(model.state_dict())
    samba.from_torch_model_(model)
    ours, theirs = make(model.parameters(), **options), make_host(host.parameters(), **options)
    device = _Device.of(model, [ours], tmp_path)
    device.train(_batches(2))
    device.fetch()
    _train(host, [theirs], _batches(2))
    _same_state(ours.state_dict(), theirs.state_dict())
    earlier = make_host(trained.parameters(), **options)
    for parameter in trained.parameters():
        parameter.grad = torch.ones_like(parameter)
    earlier.step()
    for optimizer in (ours, theirs):
        optimizer.load_state_dict(copy.deepcopy(earlier.state_dict()))
    samba.session.to_rdu(model, [ours])
    device.train(_batches(2))
    ours.cpu()
    theirs.zero_grad(set_to_none=True)
    _train(host, [theirs], _batches(2))
    _same_state(ours.state_dict(), theirs.state_dict())
    assert len(ours.state) == 4


def test_a_whole_group_without_gradients_is_told_in_the_log(tmp_path: Path) -> None:
    model = samba.from_torch_model(_Partly("unused"))
    parts = [optim.SGD(part.parameters(), lr=0.1) for part in (model.first, model.idle)]
    config = {"output_folder": str(tmp_path)}
    pef = samba.session.compile(model, _named(_batches(1)[0]), parts, config_dict=config)
    assert "sgd.1 updates nothing: its parameters get no gradient" in Path(f"{pef}.log").read_text()
