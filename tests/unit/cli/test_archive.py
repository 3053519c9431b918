"""Result archives: whatever a run may give can be read back with numpy alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from pef import dtypes
from samba_cli.results import save
from samba_cli.shell import Wrong


@pytest.mark.parametrize(
    "number", [number for number, kind in dtypes.BY_NUMBER.items() if number != dtypes.STRING]
)
def test_every_element_type_can_be_read_back(number: int, tmp_path: Path) -> None:
    dtype = dtypes.numpy_dtype(number)
    array = np.arange(6).astype(np.uint8).repeat(dtype.itemsize).view(dtype).reshape(2, 3)
    save({"y": array}, str(tmp_path / "out.npz"))
    with np.load(tmp_path / "out.npz", allow_pickle=False) as stored:
        assert stored["y"].shape == (2, 3)
        assert stored["y"].tobytes() == array.tobytes()


def test_strings_sequences_and_what_numpy_lacks(tmp_path: Path) -> None:
    strings = np.array(["a", "été"], object)
    results = {"s": strings, "q": [np.zeros(1), np.ones(2)], "none": None, "maps": [{"a": 1.0}]}
    save(results, str(tmp_path / "out.npz"))
    with np.load(tmp_path / "out.npz", allow_pickle=False) as stored:
        assert stored.files == ["s", "q.0", "q.1", "maps.0.keys", "maps.0.values"]
        assert stored["s"].tolist() == ["a", "été"]


def test_maps_are_stored_as_their_keys_and_values(tmp_path: Path) -> None:
    save({"m": {"b": 0.5, "a": 1.5}, "n": {7: 1.0}, "empty": {}}, str(tmp_path / "out.npz"))
    with np.load(tmp_path / "out.npz", allow_pickle=False) as stored:
        assert stored["m.keys"].tolist() == ["b", "a"]
        assert stored["m.values"].tolist() == [0.5, 1.5]
        assert stored["n.keys"].tolist() == [7]
        assert stored["empty.keys"].size == 0


def test_the_ending_says_what_is_written(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    save({"y": array}, str(tmp_path / "y.npy"))
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), array)
    save({"y": array, "z": array[0]}, str(tmp_path / "y.safetensors"))
    np.testing.assert_array_equal(load_file(tmp_path / "y.safetensors")["z"], array[0])
    with pytest.raises(Wrong, match=r"holds one array, and the results are 2 \(y, z\)"):
        save({"y": array, "z": array}, str(tmp_path / "two.npy"))
    with pytest.raises(Wrong, match=r"safetensors files hold no object; give an .npz"):
        save({"s": np.array(["a"], object)}, str(tmp_path / "s.safetensors"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["y.npy", "y.safetensors"]


def test_no_result_takes_the_place_of_another(tmp_path: Path) -> None:
    for named in ({"q": [np.zeros(1)], "q.0": np.ones(1)}, {"m": {1: 2.0}, "m.keys": np.ones(1)}):
        with pytest.raises(Wrong, match=r"two results would be called (q\.0|m\.keys), where items"):
            save(named, str(tmp_path / "out.npz"))
    assert not [*tmp_path.iterdir()]
