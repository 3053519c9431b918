"""A session holds its sides: each can be made and used without the others."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch

import sambaflow.samba as samba
from sambaflow.samba.compile.compiler_side import CompilerSide
from sambaflow.samba.modes import Modes
from sambaflow.samba.run.device_side import DeviceSide
from sambaflow.samba.trace.models import TracedModels


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@pytest.fixture
def x() -> samba.SambaTensor:
    return samba.ones(3, name="x")


def test_it_inherits_from_nothing() -> None:
    assert samba.SambaSession.__mro__ == (samba.SambaSession, object)


def test_the_compiler_and_the_device_work_without_a_session(
    x: samba.SambaTensor, tmp_path: Path
) -> None:
    modes, models = Modes(), TracedModels()
    modes.options = {"output_folder": str(tmp_path)}
    path = CompilerSide(modes, models).compile(Doubled(), (x,), name="doubled", inference=True)
    device = DeviceSide(models)
    with pytest.raises(samba.SambaError, match="no PEF is loaded"):
        device.get_section_types()
    device.open(path)
    assert device.get_section_types() == {"FWD"}
    device.close()
    assert device.pef is None
    assert samba.session.device is None


def test_sessions_share_nothing(x: samba.SambaTensor) -> None:
    other = samba.SambaSession()
    other.options = {"pef_name": "other"}
    other.graphs = {"one": samba.graph.FwdGraph(x, x, name="one")}
    other.traced_tensors["x"] = x
    assert other.get_samba_tensor_by_name("x") is x
    assert samba.session.options == samba.session.graphs == {}
    assert "x" not in samba.session.traced_tensors
    assert other.profiler is not samba.session.profiler


def test_what_is_set_on_a_session_is_set_on_its_side() -> None:
    session = samba.SambaSession()
    session.graphamp = False
    assert session._modes.graphamp is False
    with pytest.raises(AttributeError, match="optimizer_states"):
        session.optim_dict = {}


def test_what_a_side_does_is_described_as_there() -> None:
    assert samba.SambaSession.setup.__doc__ == Modes.setup.__doc__
    told = inspect.signature(samba.session.to_cpu)
    assert list(told.parameters) == ["model", "optims", "inplace"]


def test_reset_forgets_what_all_sides_have(x: samba.SambaTensor) -> None:
    session = samba.session
    session.options = {"pef_name": "p"}
    session.graphs = {"one": samba.graph.FwdGraph(x, x, name="one")}
    session.traced_tensors["x"] = x
    session.reset()
    assert session.options == session.graphs == {}
    assert not session.traced_tensors
