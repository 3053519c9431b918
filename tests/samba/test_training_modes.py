"""Modes of modules are compiled in: what is in another one, traced or since, is told."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import contextmanager

import pytest
import torch
from near import assert_near, exactly
from samba_models import batch, classifier, sgd
from torch import nn

import sambaflow.samba as samba
from sambaflow.samba import utils


def _compiled(folder, model: nn.Module) -> str:
    options = {"output_folder": str(folder)}
    name = f"modes_{model.training}_{model.norm.training}"
    return samba.session.compile(
        model, batch(), sgd(model), name=name, config_dict=options, loss_indices=[0]
    )


@pytest.fixture(scope="module")
def pef(tmp_path_factory) -> str:
    return _compiled(tmp_path_factory.mktemp("modes"), classifier(0.5))


@contextmanager
def _silence():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


_FROZEN: dict[str, tuple[Callable[[nn.Module], object], str]] = {
    "statistics": (lambda model: model.norm.eval(), r"norm\.training"),
    "dropout": (lambda model: model.dropout.eval(), r"dropout\.training"),
    "all": (lambda model: model.eval(), r"norm\.training .*dropout\.training"),
}


@pytest.mark.parametrize("what", _FROZEN)
def test_modes_that_change_after_tracing_are_told_where_a_run_trains(what: str, pef: str) -> None:
    freeze, named = _FROZEN[what]
    model = classifier(0.5)
    outputs = utils.trace_graph(model, batch(), sgd(model), pef=pef)
    with _silence():
        samba.session.run(batch(), outputs)
        freeze(model)
        samba.session.run(batch(), outputs, section_types=["fwd"], train=False)
        model.train()
        samba.session.run(batch(), outputs)
        freeze(model)
    words = rf"set since, without effect: {named} \(True, now False\).*train=False to evaluate"
    with pytest.warns(UserWarning, match=words):
        samba.session.run(batch(), outputs, section_types=["fwd"])
    with _silence():
        samba.session.run(batch(), outputs)


def test_modes_that_a_pef_has_otherwise_are_told(pef: str, tmp_path) -> None:
    frozen = classifier(0.5)
    frozen.norm.eval()
    words = r"other settings of modules: norm\.training is False in the model, True in it"
    with pytest.warns(UserWarning, match=words):
        utils.trace_graph(frozen, batch(), sgd(frozen), pef=pef)
    with _silence():  # none of them trains
        utils.trace_graph(frozen, batch(), None, pef=pef)
    frozen = classifier(0.5)
    frozen.norm.eval()
    own = _compiled(tmp_path, frozen)
    model = classifier(0.5)
    words = r"other settings of modules: norm\.training is True in the model, False in it"
    with pytest.warns(UserWarning, match=words):
        utils.trace_graph(model, batch(), sgd(model), pef=own)


def test_a_rate_that_a_pef_was_compiled_without_is_told(tmp_path) -> None:
    pef = _compiled(tmp_path, classifier(0.0))
    model = classifier(0.9)
    words = r"other settings of modules: dropout\.p is 0\.9 in the model, 0 in it"
    with pytest.warns(UserWarning, match=words):
        utils.trace_graph(model, batch(), sgd(model), pef=pef)
    with _silence():  # what evaluates has none, nor have those that are off
        utils.trace_graph(model, batch(), None, pef=pef)
        model = classifier(0.0)
        utils.trace_graph(model, batch(), sgd(model), pef=pef)


def test_a_rate_of_a_dropout_that_is_off_is_none(tmp_path) -> None:
    off = classifier(0.0)
    off.dropout.eval()
    own = _compiled(tmp_path, off)
    off.dropout.p = 0.9
    with _silence():
        utils.trace_graph(off, batch(), sgd(off), pef=own)


def test_statistics_that_are_frozen_when_compiled_stay(tmp_path) -> None:
    model = classifier(0.0)
    model.norm.eval()
    host = exactly(model)
    own = _compiled(tmp_path, model)
    with _silence():
        outputs = utils.trace_graph(model, batch(), sgd(model), pef=own)
        found = [samba.session.run(batch(seed), outputs)[0].item() for seed in range(3)]
    optimizer = torch.optim.SGD(host.parameters(), lr=0.1, momentum=0.9)
    wanted = []
    for seed in range(3):
        loss, _ = host(*exactly([item.torch() for item in batch(seed)]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        wanted.append(loss.item())
    assert_near(found, torch.tensor(wanted, dtype=torch.float64), what="losses")


def test_a_model_that_is_to_evaluate_as_a_whole_trains_as_a_whole(pef: str) -> None:
    """As one that was loaded with its weights, which nobody has put into training mode."""
    model = classifier(0.5).eval()
    with _silence():
        outputs = utils.trace_graph(model, batch(), sgd(model), pef=pef)
        samba.session.run(batch(), outputs)
        model.train()
        samba.session.run(batch(), outputs)


@pytest.mark.parametrize("types", [["fwd", "bckwd", "opt"], ["opt"]])
def test_updates_without_the_clipping_of_a_pef_are_told(types: list[str], tmp_path) -> None:
    model = classifier(0.0)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1, max_grad_norm=0.1)
    pef = samba.session.compile(
        model, batch(), optimizer, name="clips", config_dict={"output_folder": str(tmp_path)}
    )
    outputs = utils.trace_graph(model, batch(), optimizer, pef=pef)
    with _silence():
        samba.session.run(batch(), outputs)
        samba.session.run(batch(), outputs, section_types=["fwd", "bckwd"])
        samba.session.run(section_types=["gradnorm", "opt"])
        samba.session.run(batch(), outputs, section_types=["fwd", "bckwd"])
        samba.session.run(section_types=["gradnorm"])
        samba.session.run(section_types=["opt"])
        samba.session.run(batch(), outputs, section_types=["fwd", "bckwd"])
    with pytest.warns(UserWarning, match="OPT runs without GRADNORM, which clips gradients"):
        samba.session.run(batch(), outputs, section_types=types)
