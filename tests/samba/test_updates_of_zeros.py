"""Updates by gradients of zero, where these add up over runs, are told."""

from __future__ import annotations

import warnings
from contextlib import contextmanager

import pytest
import torch
from samba_models import batch, classifier, sgd

import sambaflow.samba as samba


def told():
    return pytest.warns(UserWarning, match="OPT runs before any BCKWD has: gradients are zero")


@contextmanager
def untold():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture
def model(tmp_path):
    model = classifier(0.0)
    optimizer = sgd(model)
    config = {"gradient_accumulation": True, "output_folder": str(tmp_path)}
    path = samba.session.compile(model, batch(), optimizer, config_dict=config)
    samba.utils.trace_graph(model, batch(), optimizer, pef=path)
    yield model
    samba.session.reset()


def test_updates_before_any_backward_pass_are_told(model):
    with told():
        samba.session.run(batch(), section_types=["FWD", "OPT"])
    with untold():
        samba.session.run(batch(), section_types=["ZEROGRAD", "FWD", "BCKWD"])
        samba.session.run(section_types=["OPT"])


def test_updates_after_gradients_are_cleared_are_told(model):
    with untold():
        samba.session.run(batch(), section_types=["ZEROGRAD", "FWD", "BCKWD", "OPT"])
        samba.session.run(section_types=["ZEROGRAD"])
    with told():
        samba.session.run(section_types=["OPT"])
    with untold():
        samba.session.run(batch(), section_types=["FWD", "BCKWD"])
        samba.session.run(section_types=["OPT"])
    with told():
        samba.session.run(section_types=["ZEROGRAD", "OPT"])


def test_gradients_that_are_given_by_hand_are_some(model):
    parameter = next(model.parameters())
    parameter.sn_grad = torch.ones_like(parameter)
    with untold():
        samba.session.run(section_types=["OPT"])
    with told():
        samba.session.run(section_types=["ZEROGRAD", "OPT"])
