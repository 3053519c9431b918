"""Warnings are told at the line of the application, whatever lies between it and their cause."""

from __future__ import annotations

import ast
import linecache
import warnings
from argparse import Namespace
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from samba_models import batch, classifier, sgd
from torch import nn

import sambaflow.samba as samba
from sambaflow.samba import utils
from sambaflow.samba.utils.common import common_app_driver
from sambaflow.samba.utils.trainer.samba import train

ROOT = Path(__file__).parents[2]
SESSION = samba.session
KEPT = []


class Keeping(nn.Module):
    """Keeps what it is given where no module has it."""

    def forward(self, x):
        KEPT[:] = [x * 2]
        return x + 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("out"))


@pytest.fixture(scope="module")
def pefs(folder):
    """Return a PEF that trains, and one that does not."""
    model, config = classifier(0.0), {"output_folder": folder}
    trains = SESSION.compile(model, batch(), sgd(model), name="trains", config_dict=config)
    return trains, SESSION.compile(model, batch(), name="infers", config_dict=config)


@pytest.fixture
def traced(pefs):
    model = classifier(0.0)
    utils.trace_graph(model, batch(), sgd(model), pef=pefs[0])
    return model


def half(folder):
    model = samba.from_torch_model(nn.Linear(4, 3).bfloat16())
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1, fp32_params=True)
    config = {"output_folder": folder}
    x = samba.ones(2, 4, name="x", dtype=torch.bfloat16)
    SESSION.compile(model, x, optimizer, config_dict=config)  # told here


def kept(folder):
    x, config = samba.ones(2, 4, name="x"), {"output_folder": folder}
    SESSION.compile(Keeping(), x, config_dict=config)  # told here


def keyword(folder):
    model, config = classifier(), {"output_folder": folder}
    SESSION.compile(model, batch(), graph_transform_hook=print, config_dict=config)  # told here


def keyword_of_the_driver(folder):
    args = Namespace(command="run")
    common_app_driver(args, classifier(), batch(), graph_transform_hook=print)  # told here


def without_updates(folder, pefs):
    model = classifier(0.0)
    utils.trace_graph(model, batch(), sgd(model), pef=pefs[1])  # told here


def without_dampening(folder, pefs):
    model = classifier(0.0)
    damped = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.5)
    SESSION.trace_graph(model, batch(), damped, pef=pefs[0])  # told here


def names():
    SESSION.use_legacy_names(True)  # told here


def number(traced):
    SESSION.run(batch(), hyperparam_dict={"unknown": 1.0})  # told here


def number_in_a_loop(traced):
    train(traced, [batch()], {"unknown": 1.0})  # told here


def number_behind_torch(traced):
    class Step(nn.Module):
        def forward(self):
            return SESSION.run(batch(), hyperparam_dict={"unknown": 1.0})  # told here

    Step()()


def number_in_blocks(traced):
    @contextmanager
    def run():
        yield SESSION.run(batch(), hyperparam_dict={"unknown": 1.0})  # told here

    with SESSION.samba_profile("profile.txt"), run():
        pass


CASES = (
    half, kept, keyword, keyword_of_the_driver, without_updates, without_dampening, names, number,
    number_in_a_loop, number_behind_torch, number_in_blocks,
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_warning_is_told_at_the_line_of_the_application(
    case, request, folder, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    wanted = case.__code__.co_varnames[: case.__code__.co_argcount]
    given = {name: request.getfixturevalue(name) for name in wanted}
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", UserWarning)
        case(**given)
    places = {(one.filename, linecache.getline(one.filename, one.lineno)) for one in found}
    assert len(places) == 1
    ((file, line),) = places
    assert file == __file__
    assert line.rstrip().endswith("# told here")


def test_no_package_counts_frames():
    """Calls move, and a number of frames between a warning and the application does not."""
    packages = ("cli/samba_cli", "compiler/sambac", "runtime/sambarun", "sambaflow", "schema/pef")
    calls = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for package in packages
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn"
    ]
    assert calls == []
