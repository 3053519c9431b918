"""Ten kinds of applications in samba: twenty steps give the losses of plain torch in float64."""

from __future__ import annotations

import pytest
import torch
from near import assert_near, exactly
from samba_applications import (
    Autoencoder,
    Characters,
    Estimates,
    Generation,
    Language,
    Pictures,
    Siamese,
    Translator,
    Tuned,
    Variational,
)
from torch.nn import functional

import sambaflow.samba as samba
from sambaflow.samba import utils

STEPS = 20
# Rounding grows from step to step.
TOLERANCE = 1e-4


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def sgd(model):
    return [torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)]


def adamw(model):
    return [torch.optim.AdamW(model.parameters(), lr=0.01)]


def two(model):
    maker = samba.optim.AdamW(model.maker.parameters(), lr=0.01, argin_region_name="maker")
    judge = samba.optim.SGD(model.judge.parameters(), lr=0.05, argin_region_name="judge")
    return [maker, judge]


def head_alone(model):
    wanted = filter(lambda parameter: parameter.requires_grad, model.parameters())
    return [samba.optim.SGD(wanted, lr=0.1)]


def inputs(kind, step):
    batch = kind.batch(step).items()
    return {name: samba.from_torch_tensor(tensor, name=name) for name, tensor in batch}


def pair(kind, make):
    """Return a model and its optimizers for samba, and those for torch, of float64."""
    torch.manual_seed(0)
    model = kind()
    host = exactly(model)
    samba.from_torch_model_(model)
    return model, make(model), host, make(host)


def traced(model, optimizers, first, losses=None):
    pef = samba.session.compile(model, first, optimizers, name="kind", loss_indices=losses)
    return utils.trace_graph(model, first, optimizers, pef=pef, loss_indices=losses)


def require_same_parameters(model, optimizers, host):
    samba.session.to_cpu(model, optimizers)
    for (name, mine), wanted in zip(model.named_parameters(), host.parameters(), strict=True):
        assert_near(samba.to_torch(mine), wanted, TOLERANCE, what=name)


@pytest.mark.parametrize(
    ("kind", "make", "losses"),
    [
        (Translator, sgd, (0,)),
        (Generation, two, (0, 1)),
        (Variational, sgd, (0,)),
        (Siamese, sgd, (0,)),
        pytest.param(Characters, sgd, (0,), marks=pytest.mark.long),
        pytest.param(Language, sgd, (0,), marks=pytest.mark.long),
        (Estimates, adamw, (1, 3)),
        (Tuned, sgd, (0,)),
        (Tuned, head_alone, (0,)),
    ],
)
def test_twenty_steps(kind, make, losses):
    model, optimizers, host, others = pair(kind, make)
    outputs = traced(model, optimizers, inputs(kind, 0), losses)
    for step in range(STEPS):
        found = samba.session.run(inputs(kind, step), outputs)
        wanted = host(**exactly(kind.batch(step)))
        for optimizer in others:
            optimizer.zero_grad()
        sum(wanted[number] for number in losses).backward()
        for optimizer in others:
            optimizer.step()
        for mine, other in zip(found, wanted, strict=True):
            assert_near(mine.torch(), other, TOLERANCE)
    require_same_parameters(model, optimizers, host)


def test_a_schedule_of_the_rate_and_statistics_of_batches():
    model, optimizers, host, (other,) = pair(Pictures, sgd)
    outputs = traced(model, optimizers, inputs(Pictures, 0))
    schedule = torch.optim.lr_scheduler.StepLR(other, 5, 0.5)
    for step in range(STEPS):
        rate = {"lr": schedule.get_last_lr()[0]}
        found = samba.session.run(inputs(Pictures, step), outputs, hyperparam_dict=rate)
        other.zero_grad()
        loss, _ = host(**exactly(Pictures.batch(step)))
        loss.backward()
        other.step()
        schedule.step()
        assert_near(found[0].torch(), loss, TOLERANCE, what="loss")
    require_same_parameters(model, optimizers, host)
    for name, buffer in host.named_buffers():
        assert_near(samba.to_torch(model.get_buffer(name)), buffer, TOLERANCE, what=name)


def test_a_loss_on_the_host():
    def loss_of(again, code, x):
        return functional.mse_loss(again, x) + 0.1 * code.abs().mean()

    model, optimizers, host, (other,) = pair(Autoencoder, sgd)
    outputs = traced(model, optimizers, inputs(Autoencoder, 0))
    for step in range(STEPS):
        x = Autoencoder.batch(step)["x"]
        parts = samba.session.run(inputs(Autoencoder, step), outputs, section_types=["fwd"])
        leaves = [samba.to_torch(part).clone().requires_grad_() for part in parts]
        mine = loss_of(*leaves, x)
        mine.backward()
        gradients = [samba.from_torch_tensor(leaf.grad) for leaf in leaves]
        samba.session.run(grad_of_outputs=gradients, section_types=["bckwd", "opt"])
        other.zero_grad()
        wanted = loss_of(*host(x.double()), x.double())
        wanted.backward()
        other.step()
        assert_near(mine, wanted, TOLERANCE, what="loss")
    require_same_parameters(model, optimizers, host)
