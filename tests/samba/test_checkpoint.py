"""Checkpoints in several files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from sambaflow.samba.errors import SambaError
from sambaflow.samba.tensors.tensor import SambaParameter
from sambaflow.samba.utils.checkpoint import load_sharded_checkpoint

_SAFE, _TORCH = "model.safetensors.index.json", "pytorch_model.bin.index.json"


def _model() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


def _write(folder: Path, state: dict[str, torch.Tensor], index: str = _SAFE) -> dict[str, str]:
    """Write `state` as two files, the first half of the names in the first."""
    names = sorted(state)
    end = "safetensors" if index == _SAFE else "bin"
    files = {name: f"part-{2 * i // len(names)}.{end}" for i, name in enumerate(names)}
    for file in set(files.values()):
        part = {name: state[name].clone() for name in names if files[name] == file}
        if index == _SAFE:
            save_file(part, folder / file)
        else:
            torch.save(part, folder / file)
    (folder / index).write_text(json.dumps({"weight_map": files}))
    return files


@pytest.mark.parametrize("index", [_SAFE, _TORCH])
def test_all_values_are_taken(tmp_path: Path, index: str) -> None:
    state = {
        name: torch.rand_like(v.float()).to(v.dtype) for name, v in _model().state_dict().items()
    }
    _write(tmp_path, state, index)
    model = _model()
    assert load_sharded_checkpoint(model, tmp_path) == ([], [])
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), name


def test_values_take_the_types_of_the_model(tmp_path: Path) -> None:
    _write(tmp_path, {"weight": torch.ones(2, 3).double(), "bias": torch.ones(2).half()})
    model = nn.Linear(3, 2)
    load_sharded_checkpoint(model, tmp_path)
    assert (model.weight.dtype, float(model.weight.detach().sum())) == (torch.float32, 6.0)


def test_parameters_without_data_get_it(tmp_path: Path) -> None:
    _write(tmp_path, {"weight": torch.ones(2, 3), "bias": torch.ones(2)})
    model = nn.Linear(3, 2, device="meta")
    with pytest.raises(SambaError, match="no memory to load into"):
        load_sharded_checkpoint(model, tmp_path)
    for parameter in model.parameters():
        parameter.__class__ = SambaParameter
    weight = model.weight
    load_sharded_checkpoint(model, tmp_path)
    assert model.weight is weight
    assert float(model.weight.detach().sum()) == 6.0


def test_tied_parameters_need_one_name(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    state = model.state_dict()
    del state["1.weight"]
    _write(tmp_path, state)
    assert load_sharded_checkpoint(model, tmp_path) == ([], [])


def test_all_problems_are_listed(tmp_path: Path) -> None:
    state = _model().state_dict()
    state["own"] = state.pop("0.bias")
    _write(tmp_path, state)
    with pytest.raises(
        SambaError, match=r"0\.bias is in the model alone; own is in the checkpoint"
    ):
        load_sharded_checkpoint(_model(), tmp_path)
    assert load_sharded_checkpoint(_model(), tmp_path, strict=False) == (["0.bias"], ["own"])


def test_shapes_that_differ(tmp_path: Path) -> None:
    _write(tmp_path, {"weight": torch.ones(3, 2), "bias": torch.ones(3)})
    with pytest.raises(SambaError, match=r"bias is \[3\], expected \[2\]; weight is \[3, 2\]"):
        load_sharded_checkpoint(nn.Linear(3, 2), tmp_path)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(SambaError, match="has no index file"):
        load_sharded_checkpoint(_model(), tmp_path)
    files = _write(tmp_path, _model().state_dict())
    (tmp_path / files["0.bias"]).unlink()
    with pytest.raises(SambaError, match=r"part-0\.safetensors is not there"):
        load_sharded_checkpoint(_model(), tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": 1}'])
def test_an_index_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / _SAFE).write_text(text)
    with pytest.raises(SambaError, match="is no index"):
        load_sharded_checkpoint(_model(), tmp_path)


def test_files_outside_the_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / _SAFE).write_text('{"weight_map": {"weight": "../other.safetensors"}}')
    with pytest.raises(SambaError, match="outside its folder"):
        load_sharded_checkpoint(nn.Linear(1, 1), tmp_path)


def test_an_index_that_promises_too_much(tmp_path: Path) -> None:
    files = _write(tmp_path, {"weight": torch.ones(2, 3), "bias": torch.ones(2)})
    save_file({"other": torch.ones(1)}, tmp_path / files["bias"])
    with pytest.raises(SambaError, match="lacks bias"):
        load_sharded_checkpoint(nn.Linear(3, 2), tmp_path)


class _Harm:
    def __reduce__(self) -> tuple[object, ...]:
        return print, ("unpickled",)


def test_nothing_is_unpickled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / _TORCH).write_text('{"weight_map": {"weight": "a.bin", "bias": "a.bin"}}')
    torch.save({"weight": _Harm()}, tmp_path / "a.bin")
    with pytest.raises(Exception, match=r"[Ww]eights"):
        load_sharded_checkpoint(nn.Linear(1, 1), tmp_path)
    assert capsys.readouterr().out == ""
