"""Checkpoints: resumed runs, PyTorch's files, differences, interruptions."""

from __future__ import annotations

import json
import os
import re
import resource
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as load_torch
from safetensors.torch import save_file as save_torch
from training_programs import batches, linear_regression
from training_variants import lazy

import sambarun
from sambarun.training.data import Cursor

MODEL = ["w", "b", "average"]


@pytest.fixture
def executable():
    with sambarun.load(linear_regression().program()) as loaded:
        yield loaded


def test_training_goes_on_bit_for_bit_from_a_checkpoint(executable, tmp_path):
    path = tmp_path / "state.safetensors"
    data = batches(8)
    for batch in data[:4]:
        executable.step(batch, {"p": 0.3, "lr": 0.05})
    executable.save(path, Cursor(step=4, epoch=1, batch=2, shuffle=3))
    with sambarun.load(linear_regression().program()) as other:
        other.step(data[0])  # whatever was there before
        assert other.load(path) == Cursor(step=4, epoch=1, batch=2, shuffle=3)
        for batch in data[4:]:
            assert executable.step(batch)["loss"].tobytes() == other.step(batch)["loss"].tobytes()
        mine, theirs = executable.state(), other.state()
        assert {n: a.tobytes() for n, a in mine.items()} == {
            n: a.tobytes() for n, a in theirs.items()
        }
        assert other.argins == executable.argins


def test_a_checkpoint_says_what_it_is(executable, tmp_path):
    from safetensors import safe_open

    path = tmp_path / "state.safetensors"
    executable.step(batches(1)[0])
    executable.save(path)
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    assert json.loads(metadata["model"]) == MODEL
    assert metadata["program"] == executable._image.file.header.digest.hex()
    assert (metadata["steps"], metadata["forwards"]) == ("1", "1")
    assert json.loads(metadata["optimizers"]) == ["sgd"]
    found = load_file(path)
    assert sorted(found) == sorted([*executable.state(), *executable.argins])
    assert found["sgd.lr"] == 0.1


class Regression(torch.nn.Module):
    """The parameters and buffers of the regression, with a tied name."""

    def __init__(self, tied=False):
        super().__init__()
        self.w = torch.nn.Parameter(torch.full((3, 1), 2.0))
        self.b = torch.nn.Parameter(torch.full((1,), 3.0))
        self.register_buffer("average", torch.full((3,), 4.0))
        if tied:
            self.tied = self.w


def test_torch_loads_the_models_entries_strictly(tmp_path):
    path = tmp_path / "state.safetensors"
    spec = replace(linear_regression(), aliases={"tied": "w"})
    module = Regression(tied=True)
    with sambarun.load(spec.program()) as executable:
        executable.step(batches(1)[0])
        executable.save(path)
        names = json.loads(_metadata(path)["model"])
        entries = load_torch(path)
        module.load_state_dict({name: entries[name] for name in names}, strict=True)
        np.testing.assert_array_equal(module.w.detach().numpy(), executable.state()["w"])
        np.testing.assert_array_equal(module.average.numpy(), executable.state()["average"])


def _metadata(path):
    """Return the metadata without checksums, for files that others write."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        return {key: value for key, value in file.metadata().items() if key != "crc32"}


def test_no_flipped_bit_goes_unnoticed(executable, tmp_path):
    path = tmp_path / "state.safetensors"
    executable.step(batches(1)[0])
    executable.save(path)
    good, before = path.read_bytes(), executable.state()
    header = 8 + int.from_bytes(good[:8], "little")
    inside = (good.index(b'"steps":"1') + 9, good.index(b"crc32") + 15)
    for place in (*range(header, len(good), 7), *inside):
        path.write_bytes(good[:place] + bytes([good[place] ^ 4]) + good[place + 1 :])
        with pytest.raises(sambarun.RunError, match=r"is damaged"):
            executable.load(path)
    for name, array in executable.state().items():
        np.testing.assert_array_equal(array, before[name])


def test_files_without_checksums_load(executable, tmp_path):
    path = tmp_path / "state.safetensors"
    executable.save(path)
    save_file(load_file(path), path, _metadata(path))
    assert executable.load(path) == Cursor()


def test_a_state_dict_of_torch_loads_and_the_optimizer_begins_anew(tmp_path):
    path = tmp_path / "model.safetensors"
    save_torch(Regression().state_dict(), path)
    with sambarun.load(lazy().program()) as executable:
        executable.initialize(0)
        executable.step(batches(1)[0], {"lr": 0.5})
        assert executable.load(path) == Cursor()
        state = executable.state()
        assert (state["w"] == 2).all()
        assert (state["average"] == 4).all()
        assert not state["w__momentum_buffer"].any()
        assert state["sgd__step"] == 0
        assert executable.argins["sgd.lr"] == 0.5


def test_a_tied_tensor_may_bear_any_of_its_names(tmp_path):
    path = tmp_path / "model.safetensors"
    entries = {name: value.numpy() for name, value in Regression().state_dict().items()}
    entries["tied"] = entries.pop("w")
    save_file(entries, path)
    with sambarun.load(lazy().program()) as executable:
        executable.load(path)
        assert (executable.state()["w"] == 2).all()
        save_file({**entries, "w": entries["tied"] + 1}, path)
        with pytest.raises(sambarun.RunError, match="are one tensor in the program, but differ"):
            executable.load(path)


def test_all_differences_are_listed_and_nothing_is_changed(executable, tmp_path):
    path = tmp_path / "other.safetensors"
    executable.save(path)
    entries = load_file(path)
    del entries["b"], entries["sgd__step"]
    entries["w"] = np.zeros((4, 1), np.float32)
    entries["average"] = np.zeros(3, np.float64)
    entries["bias"] = np.zeros(1, np.float32)
    save_file(entries, path, _metadata(path))
    before = executable.state()
    with pytest.raises(sambarun.RunError) as caught:
        executable.load(path)
    message = str(caught.value)
    assert message.startswith(f"{path} does not fit the program. ")
    for part in (
        "'bias' is not in the program.",
        "'w' is float32[4, 1], float32[3, 1] was expected.",
        "'average' is float64[3], float32[3] was expected.",
        "'b' is missing.",
        "'sgd__step' is missing.",
    ):
        assert part in message
    for name, array in executable.state().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize("victim", ["fsync", "replace"])
def test_an_interrupted_save_leaves_the_old_file_intact(executable, tmp_path, monkeypatch, victim):
    path = tmp_path / "state.safetensors"
    executable.save(path)
    before = path.read_bytes()
    executable.step(batches(1)[0])

    def fail(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, victim, fail)
    with pytest.raises(KeyboardInterrupt):
        executable.save(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == [path.name]
    executable.save(path)
    assert path.read_bytes() != before


@pytest.mark.parametrize("size", [0, 100, 960], ids=["nothing fits", "header", "tensors"])
def test_a_full_disk_leaves_the_old_file_intact(executable, tmp_path, size):
    path = tmp_path / "state.safetensors"
    executable.save(path)
    before = path.read_bytes()
    assert len(before) > size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        with pytest.raises(sambarun.RunError, match=r"state.safetensors cannot be written: File"):
            executable.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_equal_states_make_equal_files(tmp_path):
    saved = [tmp_path / f"{number}.safetensors" for number in range(4)]
    for path in saved:
        with sambarun.load(linear_regression().program()) as loaded:
            loaded.step(batches(1)[0])
            loaded.save(path, Cursor(step=1))
    assert len({path.read_bytes() for path in saved}) == 1


def test_the_file_has_the_permissions_of_any_other(executable, tmp_path):
    (tmp_path / "other").touch()
    executable.save(tmp_path / "state.safetensors")
    modes = {found.stat().st_mode for found in tmp_path.iterdir()}
    assert len(modes) == 1


def test_files_that_cannot_be_used_are_named(executable, tmp_path):
    missing = tmp_path / "missing.safetensors"
    with pytest.raises(sambarun.RunError, match=r"missing.safetensors cannot be read: No such fi"):
        executable.load(missing)
    (tmp_path / "text").write_text("no tensors here, but more than a header's length")
    with pytest.raises(sambarun.RunError, match=r"text is no safetensors file, or a damaged one"):
        executable.load(tmp_path / "text")
    with pytest.raises(sambarun.RunError, match=r"cannot be written: No such file or directory"):
        executable.save(tmp_path / "nowhere" / "state.safetensors")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sambaflow_format": "9"}, "holds optimizer state in format 9; format 1 was expected"),
        ({"steps": "many"}, "does not say how far training has come"),
        ({"cursor": "[1]"}, "does not say how far training has come"),
    ],
)
def test_metadata_that_say_nothing_are_refused(executable, tmp_path, changes, message):
    path = tmp_path / "state.safetensors"
    executable.save(path)
    save_file(load_file(path), path, {**_metadata(path), **changes})
    with pytest.raises(sambarun.RunError, match=message):
        executable.load(path)


@pytest.mark.parametrize(
    ("stated", "of_another"),
    [('["adam"]', True), ('["sgd"]', False), ("[3]", False), ('"adam"', False), ("[", False)],
)
def test_a_file_states_its_optimizers(executable, tmp_path, stated, of_another):
    """Names of entries do not say it: another program's optimizer may call a state as it likes."""
    path = tmp_path / "state.safetensors"
    executable.save(path)
    tensors = {**load_file(path), "adam.lr": np.ones((), np.float32)}
    save_file(tensors, path, {**_metadata(path), "optimizers": stated})
    with pytest.raises(sambarun.RunError, match=r"'adam\.lr' is not in the program") as caught:
        executable.load(path)
    said = "It is of the optimizer adam, and the program trains with sgd."
    assert (said in str(caught.value)) is of_another


def test_bfloat16_states_come_back(tmp_path):
    import ml_dtypes

    spec = linear_regression()
    extra = replace(
        spec.tensors["w"], dtype=ml_dtypes.bfloat16, data=np.ones((3, 1), ml_dtypes.bfloat16)
    )
    program = replace(spec, tensors={**spec.tensors, "half": extra}).program()
    path = tmp_path / "state.safetensors"
    with sambarun.load(program) as executable:
        executable.save(path)
        executable.load(path)
        assert executable.state()["half"].dtype == ml_dtypes.bfloat16
        assert (executable.state()["half"] == 1).all()


def test_a_checkpoint_of_another_program_that_fits_is_taken_with_a_warning(executable, tmp_path):
    path = tmp_path / "state.safetensors"
    executable.step(batches(1)[0])
    executable.save(path, Cursor(step=1, batch=1))
    spec = linear_regression()
    changed = replace(spec.tensors["w"], data=np.zeros((3, 1), np.float32))
    program = replace(spec, tensors={**spec.tensors, "w": changed}).program()
    with sambarun.load(program) as other:
        with pytest.warns(sambarun.OtherProgramWarning, match=f"{path} is of another program"):
            assert other.load(path) == Cursor(step=1, batch=1)
        for name, array in executable.state().items():
            np.testing.assert_array_equal(other.state()[name], array)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("sgd.lr", np.float64("nan"), "'sgd.lr' is nan; a finite number was expected."),
        ("sgd.momentum", np.float64("inf"), "'sgd.momentum' is inf; a finite number was expected."),
        ("sgd__step", np.int64(-1), "'sgd__step' is -1; a count was expected."),
    ],
)
def test_numbers_that_no_run_wrote_are_refused(tmp_path, key, value, said):
    path = tmp_path / "state.safetensors"
    with sambarun.load(linear_regression().program()) as executable:
        executable.step(batches(1)[0])
        executable.save(path)
        before, argins = executable.state(), executable.argins
        found = {**load_file(path), key: np.asarray(value)}
        save_file(found, path, _metadata(path))
        with pytest.raises(sambarun.RunError, match=re.escape(f"{path} is damaged. {said}")):
            executable.load(path)
        assert executable.argins == argins
        for name, array in executable.state().items():
            np.testing.assert_array_equal(array, before[name])
