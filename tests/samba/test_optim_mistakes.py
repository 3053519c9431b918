"""Optimizers that are changed after tracing into what no run can do, and the runs after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sambaflow.samba as samba
from sambaflow.samba import SambaError, optim, utils

_MADE = {
    "sgd": lambda parameters: optim.SGD(parameters, lr=0.1, max_grad_norm=0.5),
    "adamw": lambda parameters: optim.AdamW(parameters, lr=0.1),
}


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).square().mean()


def _inputs() -> tuple[samba.SambaTensor]:
    return (samba.from_torch_tensor(torch.arange(12.0).reshape(4, 3) / 6 - 1, name="x"),)


def _model() -> nn.Module:
    torch.manual_seed(0)
    return samba.from_torch_model(_Net())


@pytest.fixture(scope="module")
def pefs(tmp_path_factory) -> dict[str, str]:
    folder, found = str(tmp_path_factory.mktemp("out")), {}
    for name, make in _MADE.items():
        model = _model()
        found[name] = samba.session.compile(
            *(model, _inputs(), make(model.parameters())),
            name=name,
            config_dict={"output_folder": folder},
        )
    return found


@pytest.fixture
def traced(pefs) -> Iterator[Callable[..., tuple]]:
    def made(kind: str) -> tuple:
        model = _model()
        ours = _MADE[kind](model.parameters())
        outputs = utils.trace_graph(model, _inputs(), ours, pef=pefs[kind])
        return model, ours, lambda: samba.session.run(_inputs(), outputs)[0].item()

    yield made
    samba.session.reset()


WRONG = {
    "two rates": ("sgd", "lr", [0.1, 0.2]),
    "no rate": ("sgd", "lr", ()),
    "a tensor of two rates": ("sgd", "lr", torch.tensor([0.1, 0.2])),
    "a tensor of none": ("sgd", "lr", torch.tensor([])),
    "an array of two": ("sgd", "weight_decay", np.array([0.1, 0.2])),
    "a complex number": ("sgd", "lr", torch.tensor(1j)),
    "a whole number beyond floats": ("sgd", "lr", 10**400),
    "a text": ("sgd", "lr", "0.1"),
    "none": ("sgd", "lr", None),
    "no number": ("sgd", "lr", float("nan")),
    "one beta": ("adamw", "betas", (0.9,)),
    "one number for betas": ("adamw", "betas", 0.9),
    "three betas": ("adamw", "betas", (0.9, 0.99, 0.999)),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_number_is_refused_and_the_next_run_is_as_if_it_had_not_been(
    case: str, traced
) -> None:
    kind, option, value = WRONG[case]
    _, _, step = traced(kind)
    expected = [step() for _ in range(3)]
    _, ours, step = traced(kind)
    losses = [step()]
    before, ours.param_groups[0][option] = ours.param_groups[0][option], value
    for _ in range(2):
        with pytest.raises(SambaError, match="expected"):
            step()
    ours.param_groups[0][option] = before
    assert [*losses, step(), step()] == expected


@pytest.mark.parametrize("change", ["fewer", "others", "no rate"])
def test_groups_of_other_parameters_or_options_are_refused(change: str, traced) -> None:
    _, ours, step = traced("sgd")
    step()
    group = ours.param_groups[0]
    before = dict(group)
    if change == "no rate":
        del group["lr"]
    else:
        group["params"] = [
            *group["params"][:1],
            *([nn.Parameter(torch.ones(2))] * (change != "fewer")),
        ]
    for _ in range(2):
        with pytest.raises(SambaError, match=r"'lr' any more|not the 2 that it had"):
            step()
    group.update(before, params=[*reversed(before["params"])])  # another list of the same
    step()
    ours.load_state_dict(ours.state_dict())
    step()


@pytest.mark.parametrize("wrong", [None, torch.tensor([0.1, 0.2]), "x"])
def test_a_norm_that_is_no_number_is_refused(wrong: object, traced) -> None:
    _, ours, step = traced("sgd")
    step()
    ours.max_grad_norm = wrong
    with pytest.raises(SambaError, match="max_grad_norm"):
        step()
    ours.max_grad_norm = 0.25
    step()
    assert samba.session.device.argins()["max_grad_norm"] == 0.25


def test_a_norm_that_is_a_tensor_is_read_in_each_run(traced) -> None:
    _, ours, step = traced("sgd")
    ours.max_grad_norm = norm = torch.tensor(0.25)
    step()
    norm.fill_(0.125)
    step()
    assert samba.session.device.argins()["max_grad_norm"] == 0.125


def test_a_norm_that_came_after_tracing_is_refused(traced) -> None:
    _, ours, step = traced("adamw")
    ours.max_grad_norm = 0.5
    with pytest.raises(SambaError, match=r"max_grad_norm=0\.5, and had none"):
        step()


def test_optimizers_of_one_model_agree_on_its_norm(tmp_path: Path) -> None:
    model = _model()
    ours = [optim.SGD([p], lr=0.1, max_grad_norm=0.5) for p in model.parameters()]
    config = {"output_folder": str(tmp_path)}
    pef = samba.session.compile(model, _inputs(), ours, config_dict=config)
    outputs = utils.trace_graph(model, _inputs(), ours, pef=pef)
    ours[1].max_grad_norm = 0.25
    with pytest.raises(SambaError, match=r"max_grad_norm 0\.5 and 0\.25.*give both the same"):
        samba.session.run(_inputs(), outputs)
    ours[0].max_grad_norm = 0.25
    samba.session.run(_inputs(), outputs)
    assert samba.session.device.argins()["max_grad_norm"] == 0.25
    samba.session.reset()


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("SGD", {"dampening": -1}),
        ("SGD", {"lr": float("nan")}),
        ("AdamW", {"betas": (0.9, float("nan"))}),
        ("RMSprop", {"alpha": 2.0}),
        ("LAMB", {"betas": (2.0, 0.1)}),
        ("LARS", {"trust": -1.0}),
    ],
)
def test_numbers_that_make_no_sense_are_refused_when_an_optimizer_is_made(kind, wrong) -> None:
    name = next(iter(wrong))
    made = [nn.Parameter(torch.ones(2))]
    with pytest.raises(ValueError, match=f"(?i){name.removesuffix('s')}"):
        getattr(optim, kind)(made, **wrong)
    with pytest.raises(ValueError, match=f"(?i){name.removesuffix('s')}"):
        getattr(optim, kind)([{"params": made, **wrong}])


def test_a_parameter_group_has_numbers() -> None:
    for wrong in ({"lr": True}, {"momentum": "x"}, {"weight_decay": None}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} is .*, expected a finite"):
            optim.SGD([{"params": [nn.Parameter(torch.ones(2))], **wrong}])
    model = _model()
    theirs = torch.optim.SGD([{"params": model.parameters(), "dampening": "x"}], lr=0.1)
    with pytest.raises(SambaError, match="has dampening='x', expected a number"):
        samba.session.compile(model, _inputs(), theirs, name="x")


class _Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)).square().mean()


def _two() -> nn.Module:
    torch.manual_seed(0)
    return samba.from_torch_model(_Two())


def _whole(model: nn.Module) -> tuple[torch.optim.Optimizer, ...]:
    return (optim.SGD(model.parameters(), lr=0.1),)


def _of_part(model: nn.Module) -> tuple[torch.optim.Optimizer, ...]:
    return (optim.SGD(model.second.parameters(), lr=0.1),)


def _frozen(model: nn.Module) -> tuple[torch.optim.Optimizer, ...]:
    model.first.requires_grad_(False)
    return _whole(model)


def _halves(model: nn.Module, bias: str = "first") -> tuple[torch.optim.Optimizer, ...]:
    here = [p for name, p in model.named_parameters() if name.startswith(f"{bias}.")]
    there = [p for name, p in model.named_parameters() if not name.startswith(f"{bias}.")]
    return (optim.SGD([{"params": here}, {"params": there, "lr": 0.5}], lr=0.1),)


def _crossed(model: nn.Module) -> tuple[torch.optim.Optimizer, ...]:
    return _halves(model, "second")


@pytest.mark.parametrize(
    ("compiled", "given", "told"),
    [
        (_whole, _of_part, r"'sgd' does not train first.bias, first.weight, which the PEF trains"),
        (_whole, _frozen, r"'sgd' does not train first.bias, first.weight, which the PEF trains"),
        (_of_part, _whole, r"'sgd' trains first.bias, first.weight, which the PEF does not train"),
        (_halves, _crossed, r"'sgd.0' trains second.bias, second.weight, which the PEF does not"),
    ],
)
def test_an_optimizer_of_other_parameters_than_were_compiled_is_refused(
    compiled, given, told: str, tmp_path: Path
) -> None:
    """A run would train those that were compiled, whatever the optimizer names."""
    model = _two()
    pef = samba.session.compile(
        *(model, _inputs(), list(compiled(model))), config_dict={"output_folder": str(tmp_path)}
    )
    model = _two()
    with pytest.raises(SambaError, match=told):
        utils.trace_graph(model, _inputs(), list(given(model)), pef=pef)
    model = _two()
    utils.trace_graph(model, _inputs(), list(compiled(model)), pef=pef)


@pytest.mark.parametrize("empty", [[], ()])
def test_a_list_without_optimizers_is_told(empty: list | tuple, pefs) -> None:
    """It may have been meant to hold some; without any the model is traced for inference."""
    model = _model()
    with pytest.warns(UserWarning, match="the list of optimizers is empty, so nothing trains"):
        utils.trace_graph(model, _inputs(), empty, pef=pefs["sgd"])
    samba.session.reset()
