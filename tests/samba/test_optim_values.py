"""The numbers of the optimizer object count in each run, unless the run says otherwise."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

import sambaflow.samba as samba
from pef.program import GraphRole
from sambaflow.samba import SambaError, optim, utils
from sambaflow.samba.run.optimizer_matching import tell_what_has_no_effect

_TOLERANCE = {"rtol": 2e-5, "atol": 2e-6}
Options = Mapping[str, object]


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.mse_loss(self.second(torch.tanh(self.first(x))), y)


def _batch(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(6, 4, generator=generator), torch.randn(6, 3, generator=generator)


def _named(seed: int = 0) -> tuple[samba.SambaTensor, ...]:
    return tuple(samba.SambaTensor(t, name=n) for t, n in zip(_batch(seed), "xy", strict=True))


def _pair() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    host = _Net()
    return samba.from_torch_model(copy.deepcopy(host)), host


@pytest.fixture(scope="module")
def pefs(tmp_path_factory) -> Callable[..., str]:
    """A PEF for each kind of optimizer, compiled with numbers that no test uses."""
    folder, made = tmp_path_factory.mktemp("out"), {}

    def compiled(kind: type, **options: object) -> str:
        key = kind.__name__, str(options)
        if key not in made:
            model = _pair()[0]
            optimizer = kind(model.parameters(), **{"lr": 0.123, **options})
            config = {"output_folder": str(folder / str(len(made)))}
            made[key] = samba.session.compile(model, _named(), optimizer, config_dict=config)
        return made[key]

    return compiled


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    yield
    samba.session.reset()


def _losses(outputs: Sequence[Tensor], steps: Sequence[Options | None], then=lambda: None) -> list:
    found = []
    for seed, given in enumerate(steps):
        found.append(samba.session.run(_named(seed), outputs, hyperparam_dict=given)[0].item())
        then()
    return found


def _host(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, then=lambda: None):
    losses = []
    for seed in range(steps):
        optimizer.zero_grad()
        loss = model(*_batch(seed))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        then()
    return losses


def _same(ours: nn.Module, theirs: nn.Module) -> None:
    samba.session.to_cpu(ours)
    for our, their in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(our.data, their.data, **_TOLERANCE)


KINDS = {
    "sgd": (optim.SGD, torch.optim.SGD, {"lr": 0.5}),
    "terms": (
        *(optim.SGD, torch.optim.SGD),
        {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1},
    ),
    "adam": (
        *(optim.Adam, torch.optim.Adam),
        {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.2},
    ),
    "adamw": (
        *(optim.AdamW, torch.optim.AdamW),
        {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.2},
    ),
    "rmsprop": (
        *(optim.RMSprop, torch.optim.RMSprop),
        {"lr": 0.05, "alpha": 0.8, "eps": 1e-3, "momentum": 0.5, "weight_decay": 0.1},
    ),
    "adagrad": (
        *(optim.Adagrad, torch.optim.Adagrad),
        {"lr": 0.05, "eps": 1e-3, "weight_decay": 0.1},
    ),
    "tensor": (optim.AdamW, torch.optim.AdamW, {"lr": torch.tensor(0.05)}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_pef_of_other_numbers_trains_with_those_of_the_object(kind: str, pefs) -> None:
    make, make_host, options = KINDS[kind]
    model, host = _pair()
    if kind == "tensor":
        options = {**options, "betas": (0.9, 0.99), "weight_decay": 0.0}
    ours = make(model.parameters(), **options)
    outputs = utils.trace_graph(model, _named(), ours, pef=pefs(make))
    losses = _losses(outputs, [None] * 3)
    assert losses == pytest.approx(_host(host, make_host(host.parameters(), **options), 3))
    _same(model, host)


SCHEDULES = {
    "StepLR": lambda it: lr_scheduler.StepLR(it, 2, 0.1),
    "LambdaLR": lambda it: lr_scheduler.LambdaLR(it, lambda step: 1 / (1 + step)),
    "LinearLR": lambda it: lr_scheduler.LinearLR(it, 0.3, 0, total_iters=3),  # ends below 0
    "CosineAnnealingLR": lambda it: lr_scheduler.CosineAnnealingLR(it, 4),
    "OneCycleLR": lambda it: lr_scheduler.OneCycleLR(it, 0.2, total_steps=6),  # momentum too
    "CyclicLR": lambda it: lr_scheduler.CyclicLR(it, 0.01, 0.1, step_size_up=2),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_of_torch_needs_no_help(name: str, pefs) -> None:
    model, host = _pair()
    options = {"lr": 0.1, "momentum": 0.9}
    ours = optim.SGD(model.parameters(), **options)
    theirs = torch.optim.SGD(host.parameters(), **options)
    outputs = utils.trace_graph(model, _named(), ours, pef=pefs(optim.SGD))
    schedules = [SCHEDULES[name](item) for item in (ours, theirs)]
    losses = _losses(outputs, [None] * 5, schedules[0].step)
    assert losses == pytest.approx(_host(host, theirs, 5, schedules[1].step), rel=1e-4)
    _same(model, host)


def test_betas_of_a_schedule_count_too(pefs) -> None:
    model, host = _pair()
    ours = optim.AdamW(model.parameters(), lr=0.1)
    theirs = torch.optim.AdamW(host.parameters(), lr=0.1, betas=(0.9, 0.997), weight_decay=0)
    outputs = utils.trace_graph(model, _named(), ours, pef=pefs(optim.AdamW))
    schedules = [lr_scheduler.OneCycleLR(item, 0.2, total_steps=6) for item in (ours, theirs)]
    losses = _losses(outputs, [None] * 5, schedules[0].step)
    assert losses == pytest.approx(_host(host, theirs, 5, schedules[1].step), rel=1e-4)


def test_momentum_and_decay_over_an_optimizer_without_them(pefs) -> None:
    """Public applications build SGD(params, lr=0.0) and give each run its numbers."""
    model, host = _pair()
    outputs = utils.trace_graph(
        model, _named(), optim.SGD(model.parameters(), lr=0.0), pef=pefs(optim.SGD, lr=0.0)
    )
    given = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        losses = _losses(outputs, [given] * 4)
    assert losses == pytest.approx(_host(host, torch.optim.SGD(host.parameters(), **given), 4))
    _same(model, host)


def _rates(outputs, optimizer, steps: Sequence[tuple[float | None, Options | None]]) -> list[float]:
    """Run with a rate of the object, and what the run is given; return the rates of the device."""
    found = []
    for rate, given in steps:
        if rate is not None:
            optimizer.param_groups[0]["lr"] = rate
        samba.session.run(_named(), outputs, hyperparam_dict=given)
        found.append(samba.session.device.argins()["sgd.lr"])
    return found


def test_what_a_run_is_given_stays_until_the_object_changes(pefs) -> None:
    model, _ = _pair()
    optimizer = optim.SGD(model.parameters(), lr=0.5)
    outputs = utils.trace_graph(model, _named(), optimizer, pef=pefs(optim.SGD))
    steps = [
        (None, None, 0.5),  # the object, and not what was compiled
        (None, {"lr": 0.3}, 0.3),
        (None, None, 0.3),  # given values stay
        (None, {"momentum": 0.1}, 0.3),
        (0.2, None, 0.2),  # the object has changed
        (0.1, {"lr": 0.4}, 0.4),  # both at once: what is given wins
        (None, None, 0.4),
        (0.1, {"sgd.lr": 0.6}, 0.6),
        (0.05, {"lr": 0.7, "unknown": 1.0}, 0.7),
    ]
    with pytest.warns(UserWarning, match="no hyperparameter unknown"):
        found = _rates(outputs, optimizer, [step[:2] for step in steps])
    assert found == [step[2] for step in steps]


def test_a_run_that_fails_takes_nothing_away(pefs) -> None:
    model, _ = _pair()
    optimizer = optim.SGD(model.parameters(), lr=0.5)
    outputs = utils.trace_graph(model, _named(), optimizer, pef=pefs(optim.SGD))
    with pytest.raises(SambaError):
        samba.session.run((samba.SambaTensor(torch.zeros(1), name="x"),), outputs)
    assert _rates(outputs, optimizer, [(None, None)]) == [0.5]


def test_tracing_again_begins_with_the_object(pefs) -> None:
    model, _ = _pair()
    optimizer = optim.SGD(model.parameters(), lr=0.5)
    outputs = utils.trace_graph(model, _named(), optimizer, pef=pefs(optim.SGD))
    _rates(outputs, optimizer, [(None, {"lr": 0.3})])
    outputs = utils.trace_graph(model, _named(), optimizer)
    assert _rates(outputs, optimizer, [(None, None)]) == [0.5]


def test_a_state_dict_that_is_loaded_later_counts(pefs) -> None:
    model, _ = _pair()
    optimizer = optim.SGD(model.parameters(), lr=0.5)
    outputs = utils.trace_graph(model, _named(), optimizer, pef=pefs(optim.SGD))
    state = copy.deepcopy(optimizer.state_dict())
    state["param_groups"][0]["lr"] = 0.25
    optimizer.load_state_dict(state)
    assert _rates(outputs, optimizer, [(None, None)]) == [0.25]


def test_rates_of_groups_and_the_norm_are_those_of_the_object(tmp_path: Path) -> None:
    def groups(net: nn.Module) -> list[dict[str, object]]:
        return [{"params": net.first.parameters()}, {"params": net.second.parameters(), "lr": 0.01}]

    model, host = _pair()
    made = optim.SGD(groups(model), lr=0.1, max_grad_norm=100.0)
    config = {"output_folder": str(tmp_path)}
    pef = samba.session.compile(model, _named(), made, config_dict=config)
    ours = optim.SGD(groups(model), lr=0.3, max_grad_norm=0.05)
    ours.param_groups[1]["lr"] = 0.2
    outputs = utils.trace_graph(model, _named(), ours, pef=pef)
    losses = _losses(outputs, [None] * 3)
    theirs = torch.optim.SGD(groups(host), lr=0.3)
    theirs.param_groups[1]["lr"] = 0.2
    found = []
    for seed in range(3):
        theirs.zero_grad()
        loss = host(*_batch(seed))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(host.parameters(), 0.05)
        theirs.step()
        found.append(loss.item())
    assert losses == pytest.approx(found, rel=1e-4)
    ours.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
    with pytest.raises(SambaError, match="3 parameter groups, and had 2"):
        _losses(outputs, [None])
    del ours.param_groups[1:]
    with pytest.raises(SambaError, match="1 parameter groups, and had 2"):
        _losses(outputs, [None])


CHANGED = {
    "a list in place": ("betas", [0.9, 0.99], lambda betas: betas.__setitem__(0, 0.5)),
    "a tensor in place": ("lr", torch.tensor(0.05), lambda rate: rate.mul_(0.1)),
    "a tensor in a tuple": ("betas", (torch.tensor(0.9), 0.99), lambda pair: pair[0].mul_(0.5)),
    "a number of numpy": ("lr", np.float32(0.03), lambda rate: None),
    "an array of numpy": ("lr", np.array(0.03), lambda rate: rate.__imul__(0.1)),
    "a bool": ("weight_decay", True, lambda decay: None),
}


@pytest.mark.parametrize("case", CHANGED)
def test_numbers_of_every_sort_count_and_are_read_in_each_run(case: str, pefs) -> None:
    option, value, change = CHANGED[case]
    model, _ = _pair()
    ours = optim.AdamW(model.parameters(), lr=0.1)
    outputs = utils.trace_graph(model, _named(), ours, pef=pefs(optim.AdamW))
    _losses(outputs, [None])
    ours.param_groups[0][option] = value
    names = ["adamw.beta1", "adamw.beta2"] if option == "betas" else [f"adamw.{option}"]
    for then in (lambda: None, lambda: change(value)):
        then()
        _losses(outputs, [None])
        held = [float(item) for item in (value if option == "betas" else [value])]
        assert [samba.session.device.argins()[name] for name in names] == pytest.approx(held)


FORMULAS = {
    "nesterov": (optim.SGD, {"momentum": 0.5}, True),
    "dampening": (optim.SGD, {"momentum": 0.5}, 0.5),
    "maximize": (torch.optim.SGD, {}, True),
    "amsgrad": (optim.Adam, {}, True),
    "centered": (optim.RMSprop, {}, True),
    "lr_decay": (optim.Adagrad, {}, 0.1),
}


@pytest.mark.parametrize("option", FORMULAS)
def test_what_no_run_can_change_is_refused_when_it_is_changed(option: str, pefs) -> None:
    make, options, value = FORMULAS[option]
    model, _ = _pair()
    ours = make(model.parameters(), lr=0.1, **options)
    outputs = utils.trace_graph(model, _named(), ours, pef=pefs(make))
    _losses(outputs, [None])
    before = ours.param_groups[0][option]
    ours.param_groups[0][option] = value
    with pytest.raises(SambaError, match=f"{option}={value}, and had {option}={before}"):
        _losses(outputs, [None])
    ours.param_groups[0][option] = before
    _losses(outputs, [None])


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_no_program_maximizes(kind: str, pefs) -> None:
    model, _ = _pair()
    make = getattr(torch.optim, kind)
    ours = make(model.parameters(), lr=0.1, maximize=True)
    with pytest.raises(SambaError, match="maximize=True, which a program cannot do"):
        utils.trace_graph(model, _named(), ours, pef=pefs(make))


def test_a_run_that_was_interrupted_takes_no_number_with_it(pefs, monkeypatch) -> None:
    model, _ = _pair()
    ours = optim.SGD(model.parameters(), lr=0.1)
    outputs = utils.trace_graph(model, _named(), ours, pef=pefs(optim.SGD))
    _losses(outputs, [{"momentum": 0.9}])
    ours.param_groups[0]["lr"] = 0.2

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(samba.session.device, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            _losses(outputs, [{"weight_decay": 0.3}])
    _losses(outputs, [None])
    now = samba.session.device.argins()
    assert [now[f"sgd.{name}"] for name in ("lr", "momentum", "weight_decay")] == [0.2, 0.9, 0.3]


def test_names_of_hyperparameters_are_words(pefs) -> None:
    model, _ = _pair()
    ours = optim.SGD(model.parameters(), lr=0.1)
    outputs = utils.trace_graph(model, _named(), ours, pef=pefs(optim.SGD))
    with pytest.raises(SambaError, match="hyperparam_dict has the name 1; give a dict"):
        _losses(outputs, [{1: 0.5}])


def test_what_is_compiled_in_and_differs_is_told(tmp_path: Path, pefs) -> None:
    model, _ = _pair()
    ours = optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.1)
    with pytest.warns(UserWarning, match="compiled without the dampening of 'sgd'"):
        utils.trace_graph(model, _named(), ours, pef=pefs(optim.SGD))
    plain = optim.SGD(model.parameters(), lr=0.1)
    with pytest.warns(UserWarning, match=r"clips gradients to the norm 1\.0"):
        utils.trace_graph(model, _named(), plain, pef=pefs(optim.SGD, max_grad_norm=1.0))


@pytest.mark.parametrize("term", ["momentum", "weight_decay"])
@pytest.mark.parametrize(
    ("whose", "there"), [("", False), ("sgd", True), ("fit.sgd", True), ("enc.sgd", False)]
)
def test_terms_that_an_older_program_has_no_argin_for_are_told(
    term: str, whose: str, there: bool, recwarn: pytest.WarningsRecorder
) -> None:
    """Programs had no argins of terms that were zero when they were compiled.

    The model `fit` trains; a group `enc.sgd` is another one, though its name ends in the same way.
    """
    group = {"name": "sgd", "kind": "sgd", "momentum": 0.0, "weight_decay": 0.0}
    argins = [("sgd", "lr"), *([(whose, term)] if whose else [])]
    program = SimpleNamespace(
        argins=[SimpleNamespace(group=group, option=option) for group, option in argins],
        graphs=[SimpleNamespace(model="fit", role=GraphRole.TRAIN)],
        producer=SimpleNamespace(options=json.dumps({"optimizers": [group]})),
    )
    device = SimpleNamespace(
        program=program, host=SimpleNamespace(updates=True, trains=True), path="net.pef"
    )
    ours = optim.SGD([nn.Parameter(torch.zeros(2))], lr=0.1, **{term: 0.5})
    tell_what_has_no_effect(device, (ours,))
    told = [str(item.message) for item in recwarn]
    assert [f"compiled without the {term} of 'sgd'" in text for text in told] == [True] * (
        not there
    )
