"""Programs for inference: their weights come from the model that is traced."""

from __future__ import annotations

import pytest
import torch
from samba_models import batch, classifier, sgd

import sambaflow.samba as samba
from sambaflow.samba import SambaError, utils


@pytest.fixture(scope="module")
def pef(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("out"))
    model = classifier()
    before = [*model.parameters(), *model.buffers()]
    path = samba.session.compile(model, batch(), name="c", config_dict={"output_folder": folder})
    assert all(a is b for a, b in zip(before, [*model.parameters(), *model.buffers()], strict=True))
    return path


def trained():
    model = classifier()
    torch.manual_seed(1)
    for tensor in (*model.parameters(), model.norm.running_mean):
        tensor.data = torch.randn_like(tensor.data)
    return model


def test_weights_are_those_of_the_traced_model(pef):
    model = trained()
    outputs = utils.trace_graph(model, batch(), pef=pef)
    found = samba.session.run(batch(), outputs)
    wanted = model.eval()(*(item.torch() for item in batch()))
    for mine, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine.torch(), samba.to_torch(other))
    samba.session.reset()


def test_weights_written_later_count(pef):
    model = trained()
    outputs = utils.trace_graph(model, batch(), pef=pef)
    with torch.no_grad():
        model.layer.weight.zero_()
    model.layer.weight.rdu()
    found = samba.session.run(batch(), outputs[1], section_types=["FWD"])[0]
    wanted = model.eval()(*(item.torch() for item in batch()))[1]
    torch.testing.assert_close(found.torch(), samba.to_torch(wanted))
    assert samba.session.get_section_types() == {"FWD"}
    samba.session.reset()


def test_nothing_was_transferred_and_the_run_says_what_is_missing(pef):
    model = trained()
    outputs = utils.trace_graph(model, batch(), pef=pef, transfer_device=False)
    with pytest.raises(RuntimeError, match=r"no values for .*layer\.weight"):
        samba.session.run(batch(), outputs)
    samba.session.to_rdu(model)
    samba.session.run(batch(), outputs)
    samba.session.reset()


def test_an_optimizer_finds_no_section_in_a_pef_for_inference(pef):
    model = classifier()
    with pytest.warns(UserWarning, match=r"c\.pef has no OPT sections: no run updates .* again"):
        outputs = utils.trace_graph(model, batch(), sgd(model), pef=pef)
    samba.session.run(batch(), outputs)
    for types, missing in ((["FWD", "Opt"], "OPT"), ("bckwd", "BCKWD"), (["fwd", "zerograd"], "Z")):
        words = f"no sections of type {missing}.*; it has FWD; compile it with"
        with pytest.raises(SambaError, match=words):
            samba.session.run(batch(), outputs, section_types=types)
    with pytest.raises(SambaError, match="no backward pass; compile it with an optimizer"):
        samba.session.run(batch(), outputs, grad_of_outputs=[torch.ones(()), None])
    samba.session.run(batch(), outputs, grad_of_outputs=[None, None])


def test_an_optimizer_finds_no_section_in_a_pef_of_gradients(tmp_path):
    model = classifier()
    config = {"output_folder": str(tmp_path), "inference": False}
    pef = samba.session.compile(model, batch(), name="c", config_dict=config)
    with pytest.warns(UserWarning, match="no OPT sections.* was compiled without an optimizer"):
        outputs = utils.trace_graph(model, batch(), sgd(model), pef=pef)
    with pytest.raises(SambaError, match="type OPT; it has FWD, BCKWD; compile it with an opt"):
        samba.session.run(batch(), outputs, section_types=["fwd", "bckwd", "opt"])
    samba.session.run(batch(), outputs)
    assert model.layer.weight.sn_grad.any()


def test_terms_that_an_optimizer_has_not_are_told_once(tmp_path):
    model = classifier()
    plain = samba.optim.AdamW(model.parameters(), lr=0.1)
    config = {"output_folder": str(tmp_path)}
    pef = samba.session.compile(model, batch(), plain, name="c", config_dict=config)
    outputs = utils.trace_graph(model, batch(), plain, pef=pef)
    usual = {"lr": 0.2, "p": 0.0, "momentum": 0.0, "weight_decay": 0.0}
    samba.session.run(batch(), outputs, usual)  # as applications do, whatever the PEF has
    with pytest.warns(UserWarning, match="no hyperparameter momentum; .* optimizers have no such"):
        samba.session.run(batch(), outputs, {**usual, "momentum": 0.9})
    samba.session.run(batch(), outputs, {**usual, "momentum": 0.9})


def test_a_model_that_is_traced_for_inference_later_does_not_learn_any_more(tmp_path):
    """What a run without `train` runs is another thing where there is an optimizer."""
    model = classifier()
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    config = {"output_folder": str(tmp_path)}
    path = samba.session.compile(model, batch(), optimizer, config_dict=config)
    outputs = utils.trace_graph(model, batch(), optimizer, pef=path)
    samba.session.run(batch(), outputs, train=False)
    learnt = model.layer.weight.sn_data
    outputs = utils.trace_graph(model, batch(), transfer_device=False)
    found = samba.session.run(batch(), outputs, train=False)
    assert torch.equal(model.layer.weight.sn_data, learnt)
    model.requires_grad_(True)
    outputs = utils.trace_graph(model, batch(), optimizer, transfer_device=False)
    samba.session.run(batch(), outputs, train=False)
    assert not torch.equal(model.layer.weight.sn_data, learnt)
    assert found[0].shape == ()
    samba.session.reset()
