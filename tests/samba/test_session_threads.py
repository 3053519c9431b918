"""Runs of several threads on one session, and of a run within a run."""

from __future__ import annotations

import signal
import threading

import pytest
import torch
from near import assert_near, exactly
from samba_models import batch, classifier, sgd

import sambaflow.samba as samba
from sambaflow.samba import SambaError, utils


@pytest.fixture
def model(tmp_path):
    model = classifier(0.0)
    pef = samba.session.compile(
        *(model, batch(), sgd(model)),
        name="c",
        config_dict={"output_folder": str(tmp_path)},
        loss_indices=[0],
    )
    utils.trace_graph(model, batch(), sgd(model), pef=pef)
    return model


def test_threads_take_turns_each_with_its_own_inputs(model) -> None:
    host, found, failed = exactly(model).eval(), {}, []

    def evaluate(seeds: range) -> None:
        try:
            for seed in seeds:
                (out,) = samba.session.run(
                    batch(seed), model.output_tensors[1], section_types=["fwd"], train=False
                )
                found[seed] = out.torch().clone()
        except Exception as error:  # which a thread keeps for itself
            failed.append(error)

    threads = [
        threading.Thread(target=evaluate, args=(range(at, 60, 3),), daemon=True) for at in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    for seed in range(60):
        wanted = host(*exactly([item.torch() for item in batch(seed)]))[1]
        assert_near(found[seed], wanted.detach(), what=f"outputs of batch {seed}")


def test_a_run_within_a_run_is_refused(model, monkeypatch) -> None:
    run = samba.session.device.run

    def interrupted(*args):
        signal.raise_signal(signal.SIGUSR1)
        return run(*args)

    said = []

    def handler(*_):
        with pytest.raises(SambaError, match="another run of the session waits for") as caught:
            samba.session.run(batch(1), model.output_tensors)
        said.append(caught.value)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        wanted = samba.session.run(batch(), model.output_tensors, {"lr": 0.0})[0].item()
        monkeypatch.setattr(samba.session.device, "run", interrupted)
        found = samba.session.run(batch(), model.output_tensors)[0].item()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert found == wanted
    assert len(said) == 1
    monkeypatch.undo()
    assert torch.isfinite(torch.tensor(samba.session.run(batch(), model.output_tensors)[0].item()))
