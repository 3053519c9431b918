"""What is converted, kept and copied by name, before and after a PEF is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from samba_models import batch, classifier, sgd

import sambaflow.samba as samba
from sambaflow.samba import utils
from sambaflow.samba.tensors.tensor_table import TensorTable

WEIGHT, MEAN = "classifier__layer__weight", "classifier__norm__running_mean"
MOMENTUM = f"{WEIGHT}__momentum_buffer"


@pytest.fixture(scope="module")
def pef(tmp_path_factory: pytest.TempPathFactory) -> str:
    model = classifier(0.5)
    config = {"output_folder": str(tmp_path_factory.mktemp("out"))}
    return samba.session.compile(model, batch(), sgd(model), config_dict=config)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    samba.session.reset()
    yield
    samba.session.reset()


def on_device(name: str) -> torch.Tensor:
    return samba.session.get_tensors_by_name([name])[0].torch()


@pytest.mark.parametrize("copy", ["to_cpu", "to_cpu_", "sync_buffers_to_cpu"])
def test_without_a_pef_the_host_has_all_there_is(copy: str, tmp_path: Path) -> None:
    """A trainer saves its checkpoint whether it ran on the device or not."""
    model = classifier(0.5)
    samba.from_torch_model_(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    getattr(samba.session, copy)(model)
    if copy != "sync_buffers_to_cpu":
        getattr(samba.session, copy)(model, [sgd(model)])
    torch.save(model.state_dict(), tmp_path / "checkpoint.pt")
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize("copy", ["to_cpu", "to_cpu_"])
def test_without_a_pef_optimizers_may_be_wrapped(copy: str) -> None:
    """A trainer on the host alone may have optimizers that the device could not run."""
    getattr(samba.session, copy)(classifier(0.5), object())


def test_tables_of_tensors_may_be_replaced() -> None:
    session, table = samba.session, TensorTable({"a": samba.ones(2, name="a")})
    session.traced_tensors = table
    session.buffer_dict = TensorTable()
    samba.from_torch_model_(classifier(0.5))
    assert session._traced_tensors is table
    assert session.get_samba_tensor_by_name("a") is table["a"]
    assert "classifier__norm__running_mean" in session.buffer_dict


def test_what_was_converted_last_goes_to_the_device(pef: str) -> None:
    first = classifier(0.5)
    utils.trace_graph(first, batch(), sgd(first), pef=pef)
    other = classifier(0.5)
    other.layer.weight.data.fill_(3.0)
    other.norm.running_mean.fill_(2.0)
    samba.from_torch_model_(other)
    image = samba.from_torch_tensor(torch.full(batch()[0].shape, 5.0), name="image")
    samba.from_torch_tensor(torch.zeros(1), name="image")  # of another shape: not what was traced
    assert samba.session.get_samba_tensor_by_name(WEIGHT) is other.layer.weight
    assert samba.session._traced_tensors["image"] is image
    samba.session.to_device()
    assert on_device(WEIGHT).eq(3).all()
    assert on_device(MEAN).eq(2).all()
    assert on_device("image").eq(5).all()


def test_names_that_were_not_traced_are_not_kept(pef: str) -> None:
    model = classifier(0.5)
    utils.trace_graph(model, batch(), sgd(model), pef=pef)
    samba.from_torch_tensor(torch.zeros(2), name="further")
    assert "further" not in samba.session.traced_tensors
    assert samba.session._traced_tensors is samba.session.traced_tensors


def test_state_of_optimizers_goes_to_the_device_by_name(pef: str) -> None:
    model = classifier(0.5)
    optimizer = sgd(model)
    outputs = utils.trace_graph(model, batch(), optimizer, pef=pef)
    for _ in range(2):  # also after the host has got new memory for it
        samba.session.run(batch(), outputs)
        samba.session.to_cpu(model, [optimizer])
        optimizer.state[model.layer.weight]["momentum_buffer"].fill_(7.0)
        found = samba.session.optim_dict
        assert all(isinstance(tensor, samba.SambaTensor) for tensor in found.values())
        assert not on_device(MOMENTUM).eq(7).any()
        for tensor in found.values():
            tensor.rdu()
        assert on_device(MOMENTUM).eq(7).all()


def test_tables_of_tensors_are_read_in_every_way(pef: str) -> None:
    """By name, in order, by position, and called: versions of applications differ."""
    model, session = classifier(0.5), samba.session
    optimizer = sgd(model)
    utils.trace_graph(model, batch(), optimizer, pef=pef)
    place = [*session.optim_dict].index(MOMENTUM)
    optimizer.state[model.layer.weight]["momentum_buffer"].fill_(7.0)
    session.optim_dict.values()[place].rdu()
    assert on_device(MOMENTUM).eq(7).all()
    assert on_device(f"{MEAN[: -len('running_mean')]}weight__momentum_buffer").eq(0).all()
    for table in (session.optim_dict, session.traced_tensors, session.buffer_dict):
        assert len(table) == len(table.values()) == len(table()) > 0
        assert (
            [*map(id, table.values())] == [*map(id, table())] == [id(v) for _, v in table.items()]
        )
        assert table.values()[-1] is table[[*table][-1]]
        with pytest.raises(IndexError):
            table.values()[len(table)]


def test_names_of_auxiliary_tensors(pef: str) -> None:
    assert samba.session.is_valid_aux_tensor_name("angles")
    model = classifier(0.5)
    utils.trace_graph(model, batch(), sgd(model), pef=pef)
    assert samba.session.is_valid_aux_tensor_name("angles")
    assert not samba.session.is_valid_aux_tensor_name("image")
    assert not samba.session.is_valid_aux_tensor_name("")
