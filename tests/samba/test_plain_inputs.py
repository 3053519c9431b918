"""What is no tensor among the inputs of a run: compiled in, or refused."""

from __future__ import annotations

import pytest
import torch
from samba_models import batch, classifier, sgd

import sambaflow.samba as samba
from sambaflow.samba import SambaError


@pytest.mark.parametrize("wrong", [[[0.5] * 3], 3.0, "x", {"x": [1]}], ids=repr)
def test_numbers_in_place_of_tensors_are_refused(wrong, tmp_path):
    """Or else a run would go on with what an earlier one was given."""
    x, y = batch(0)
    model = classifier()
    config = {"output_folder": str(tmp_path)}
    pef = samba.session.compile(model, (x, y), sgd(model), config_dict=config)
    outputs = samba.utils.trace_graph(model, (x, y), sgd(model), pef=pef)
    before = samba.session.run((x, y), outputs, train=False, section_types=["FWD"])
    for given in ((wrong, y), [x, wrong], {"x": wrong, "y": y}):
        with pytest.raises(SambaError, match="is no tensor is compiled in"):
            samba.session.run(given, outputs, section_types=["FWD"])
    after = samba.session.run(None, outputs, train=False, section_types=["FWD"])
    assert torch.equal(after[1], before[1])


def test_numbers_that_a_model_was_traced_with_may_be_given_again(tmp_path):
    class Scaled(torch.nn.Module):
        def forward(self, x, by, how):
            return x * by if how == "times" else x

    x = samba.from_torch_tensor(torch.ones(2, 3), name="x")
    model = samba.from_torch_model(Scaled())
    config = {"output_folder": str(tmp_path), "inference": True}
    pef = samba.session.compile(model, (x, 2.5, "times"), config_dict=config)
    outputs = samba.utils.trace_graph(model, (x, 2.5, "times"), pef=pef)
    assert float(samba.session.run((x, 2.5, "times"), outputs)[0][0, 0]) == 2.5
    with pytest.raises(SambaError, match=r"has 3\.5, and was traced with 2\.5, 'times'"):
        samba.session.run((x, 3.5, "times"), outputs)
