"""Optimizers as the command line has them."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from sambac import CompileOptions
from sambac.emit.producer import producer
from sambac.errors import CompileError
from sambac.facts import Record
from sambac.optimizers import LARS, SGD, Adam, AdamW, parse_optimizer


def test_everything_can_be_said() -> None:
    text = "adamw: lr=1e-3, weight_decay=0.02, params=encoder.*|head.*, name=x, amsgrad=true"
    assert parse_optimizer(text) == AdamW(
        lr=1e-3, weight_decay=0.02, params=("encoder.*", "head.*"), name="x", amsgrad=True
    )
    assert parse_optimizer("lars") == LARS()
    assert parse_optimizer("sgd:momentum=0.9,nesterov") == SGD(momentum=0.9, nesterov=True)


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("adm", ["no optimizer 'adm' (did you mean 'adam'?)", "sgd, adam, adamw"]),
        ("sgd:lrr=1", ["sgd: unknown option 'lrr' (did you mean 'lr'?)"]),
        ("sgd:zzz=1", ["unknown option 'zzz'; its options are params, name, lenient, lr"]),
        ("sgd:lr=x,momentum", ["lr is 'x'; write a number", "momentum has no value"]),
        ("sgd:lr=1,lr=2", ["lr is given twice"]),
        ("sgd:momentum=0.9,nesterov=maybe", ["nesterov is 'maybe'; write true or false"]),
        ("sgd:nesterov", ["nesterov needs a momentum above 0"]),
        ("lamb:min_trust=2,max_trust=1", ["min_trust is 2, above a max_trust of 1"]),
        ("adam:beta1=1,lr=-2", ["beta1 is 1; give", "lr is -2; give"]),
        ("adam:params=", ["params has no value; write params=PATTERN|PATTERN"]),
    ],
)
def test_every_mistake_is_named(text: str, phrases: list[str]) -> None:
    with pytest.raises(CompileError) as caught:
        parse_optimizer(text)
    for phrase in phrases:
        assert phrase in str(caught.value)


def test_numbers_are_checked_in_python_too() -> None:
    with pytest.raises(CompileError, match=r"adam: lr is nan; .* beta2 is 2; "):
        Adam(lr=float("nan"), beta2=2.0)
    with pytest.raises(CompileError, match="give a tuple of patterns"):
        Adam(params=("*",)[:0])


@pytest.mark.parametrize(
    "given",
    [
        {"lr": True},
        {"amsgrad": "no"},
        {"amsgrad": 1},
        {"name": 3},
        {"lenient": None},
        {"eps": -1},
        {"eps": -1e-13},
    ],
)
def test_every_option_is_of_its_kind(given: dict[str, object]) -> None:
    name, value = next(iter(given.items()))
    with pytest.raises(CompileError, match=f"adam: {name} is {value!r}; give "):
        Adam(**given)


def test_numbers_of_numpy_are_recorded() -> None:
    options = CompileOptions(
        train=True,
        optimizers=(SGD(lr=np.float32(0.5)),),
        max_grad_norm=np.float32(2),
        sections=np.int64(3),
    )
    facts = json.loads(producer(SimpleNamespace(name="m", sha256=""), options, Record()).options)
    assert (facts["optimizers"][0]["lr"], facts["max_grad_norm"]) == (0.5, 2.0)
    assert repr(facts["sections"]) == "3"
