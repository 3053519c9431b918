"""`--graphamp-preset`: the precision of a compiled model, and what tolerances make of it."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import pef
import sambaflow.samba as samba
from sambaflow.samba.errors import SambaError
from sambaflow.samba.utils import assert_close


class Layers(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))


def both(tmp_path, preset, exact=False):
    """Return the PEF's precision, and the outputs of the host and of the device."""
    model = samba.from_torch_model(Layers())
    x = samba.from_torch_tensor(torch.randn(4, 16), name="x")
    session = samba.session
    config = {"output_folder": str(tmp_path), "graphamp_preset": preset}
    if exact:
        with session.disable_graphamp():
            path = session.compile(model, (x,), config_dict=config, inference=True)
    else:
        path = session.compile(model, (x,), config_dict=config, inference=True)
    with pef.open(path) as file:
        precision = json.loads(file.program.producer.options)["precision"]
    outputs = session.trace_graph(model, (x,), pef=path)
    (found,) = session.run(input_tensors=[x], output_tensors=outputs)
    with torch.no_grad():
        return precision, model(x), found


@pytest.mark.parametrize(("preset", "precision"), [("mp1", "mixed"), ("mp4", "bfloat16")])
def test_tolerances_of_applications_hold_in_bfloat16_and_tighter_ones_do_not(
    tmp_path, preset, precision
):
    named, host, device = both(tmp_path, preset)
    assert named == precision
    assert_close(host, device, "output", threshold=2e-2)
    with pytest.raises(AssertionError):
        assert_close(host, device, "output", threshold=1e-6)


@pytest.mark.parametrize(("preset", "exact"), [("mp0", False), (None, False), ("mp1", True)])
def test_float32_is_exact(tmp_path, preset, exact):
    named, host, device = both(tmp_path, preset, exact)
    assert named == "float32"
    torch.testing.assert_close(samba.to_torch(device), samba.to_torch(host), rtol=1e-5, atol=1e-6)
    assert samba.session.graphamp


def test_other_presets_are_refused(tmp_path):
    with pytest.raises(SambaError, match="graphamp_preset is 'mp2'; choose mp0, mp1, mp4"):
        both(tmp_path, "mp2")
