"""Where PEFs are written: refused before a compilation that would be in vain."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import sambaflow.samba as samba
from sambaflow.samba import SambaError
from sambaflow.samba.compile.output import output_path


class Unseen(nn.Module):
    """A model that must not even be traced."""

    def forward(self, x):
        raise AssertionError


def refused(**config):
    with pytest.raises(SambaError) as caught:
        samba.session.compile(
            Unseen(), samba.from_torch_tensor(torch.zeros(2), name="x"), config_dict=config
        )
    return str(caught.value)


def test_a_pef_lies_in_a_folder_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert output_path({}, "model") == Path("out/model/model.pef")
    config = {"output_folder": tmp_path / "new" / "er", "pef_name": "other.pef"}
    assert output_path(config, "model") == tmp_path / "new" / "er" / "other" / "other.pef"
    assert output_path({}, "/my/model") == Path("out/_my_model/_my_model.pef")
    assert not [*tmp_path.iterdir()]


def test_the_pef_of_the_command_compile_is_written_where_it_says(tmp_path):
    names = {"output_folder": tmp_path, "pef_name": "other"}
    asked = {**names, "pef": tmp_path / "a" / "app.pef"}
    assert output_path({**asked, "command": "compile"}, "model") == tmp_path / "a" / "app.pef"
    for command in ("run", "test", None):  # which read the file of this name
        assert output_path({**asked, "command": command}, "m") == tmp_path / "other" / "other.pef"
    assert "is a folder" in refused(command="compile", pef=tmp_path)


@pytest.mark.parametrize("name", ["..", ".", "a/b", "/tmp/x", ".pef", "a\0b", "m" * 300])
def test_names_of_no_file_are_refused(name, tmp_path):
    assert "which is no name of a file" in refused(pef_name=name, output_folder=tmp_path)


def test_places_that_cannot_be_are_refused(tmp_path):
    file = tmp_path / "file"
    file.write_text("kept")
    assert f"{file} is no folder" in refused(output_folder=file, pef_name="m")
    (tmp_path / "m" / "m.pef").mkdir(parents=True)
    assert "is a folder" in refused(output_folder=tmp_path, pef_name="m")
    assert "cannot be made in /proc" in refused(output_folder="/proc/nope", pef_name="m")
    assert file.read_text() == "kept"
