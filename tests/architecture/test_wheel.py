"""The wheel holds exactly the five packages, whole, with their data files."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PACKAGES = (
    "compiler/sambac",
    "runtime/sambarun",
    "schema/pef",
    "host/sambahost",
    "cli/samba_cli",
    "sambaflow",
    "pybuda",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in the wheel, built without a network from what this environment has."""
    folder = tmp_path_factory.mktemp("dist")
    options = ["--wheel", "--no-isolation", "--skip-dependency-check", "--outdir", str(folder)]
    command = [sys.executable, "-m", "build", *options, str(_ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        return set(archive.namelist())


def _expected() -> set[str]:
    """Every file of the packages but compiled Python, by its name in the wheel."""
    return {
        str(path.relative_to((_ROOT / package).parent))
        for package in _PACKAGES
        for path in (_ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_it_holds_the_packages_and_nothing_else(wheel: set[str]) -> None:
    content = {name for name in wheel if ".dist-info/" not in name}
    assert content == _expected()


def test_it_is_typed_and_brings_its_data(wheel: set[str]) -> None:
    for package in _PACKAGES:
        assert f"{Path(package).name}/py.typed" in wheel
    assert "pef/pef.fbs" in wheel
    assert {name for name in wheel if name.startswith("sambac/") and name.endswith(".toml")}


def test_it_carries_its_license(wheel: set[str]) -> None:
    assert [name for name in wheel if name.endswith(".dist-info/licenses/LICENSE")]
    text = (_ROOT / "LICENSE").read_text()
    assert text.split()[:5] == ["Apache", "License", "Version", "2.0,", "January"]
    assert "END OF TERMS AND CONDITIONS" in text
