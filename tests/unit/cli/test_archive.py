"""Result archives: whatever a run may give can be read back with numpy alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pef import dtypes
from samba_cli.archive import save


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
        assert stored.files == ["s", "q.0", "q.1"]
        assert stored["s"].tolist() == ["a", "été"]
