"""What is in the repository: true commands, no traces of the machines it was written on."""

from __future__ import annotations

import dataclasses
import importlib
import re
import runpy
import subprocess
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]

# Character classes keep this file from matching itself.
_TRACES = {
    "a folder of a machine": r"(?<![\w.])/(?:home|root|Users|wor[k])/\w",
    "a host of a package registry": r"pyp[i]\.|pythonhoste[d]|condaforg[e]|index-ur[l]",
    "an address in a network": r"\b(?:10|127|192)\.\d+\.\d+\.\d+\b",
}


def _tracked() -> list[Path]:
    """The text files under version control, and new ones that are not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=True)
    paths = [_ROOT / line for line in listed.stdout.splitlines()]
    return [path for path in paths if path.is_file() and b"\0" not in path.read_bytes()]


@pytest.mark.parametrize("kind", _TRACES)
def test_no_file_names(kind: str) -> None:
    pattern = re.compile(_TRACES[kind])
    found = [
        f"{path.relative_to(_ROOT)}: {match.group()}"
        for path in _tracked()
        for match in pattern.finditer(path.read_text("utf-8"))
    ]
    assert not found


def test_versions_are_pinned_without_addresses() -> None:
    lines = (_ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert len(pins) > 20
    assert not [line for line in pins if not re.fullmatch(r"[\w.\-]+==[\w.\-]+", line)]


def test_documented_make_targets_exist() -> None:
    makefile = (_ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    pages = [_ROOT / "README.md", _ROOT / "ARCHITECTURE.md", *(_ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text("utf-8") for page in pages)
    documented = set(re.findall(r"(?:`|^|\$ )make ([a-z-]+)", text, flags=re.MULTILINE))
    assert documented
    assert documented <= targets


def test_links_of_pages_lead_to_files() -> None:
    pages = [*_ROOT.glob("*.md"), _ROOT / "schema" / "README.md", *(_ROOT / "docs").rglob("*.md")]
    dead = [
        f"{page.relative_to(_ROOT)}: {link}"
        for page in pages
        for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text("utf-8"))
        if not (page.parent / link).exists()
    ]
    assert not dead


def test_files_that_pages_name_exist() -> None:
    files = [f"/{path.relative_to(_ROOT).as_posix()}" for path in _tracked()]
    named = [
        (page, name)
        for page in (_ROOT / "ARCHITECTURE.md", *(_ROOT / "docs" / "decisions").glob("*.md"))
        for name in re.findall(r"`([\w./]*\w\.py)`", page.read_text("utf-8"))
    ]
    assert len(named) > 100
    assert not [(page.name, name) for page, name in named if not _ends_one(files, name)]


def _ends_one(files: list[str], name: str) -> bool:
    return any(file.endswith(f"/{name}") for file in files)


def test_cures_of_the_pytorch_frontend_stand_where_their_table_says() -> None:
    frontend = _ROOT / "compiler" / "sambac" / "frontend" / "torch"
    page = (_ROOT / "docs" / "decisions" / "pytorch-frontend.md").read_text("utf-8")
    rows = re.findall(r"^\| (?!lost|--).*\|(.*)\|(.*)\|$", page, re.MULTILINE)
    assert len(rows) > 40
    for cures, tests in rows:
        for name in re.findall(r"`([^`]+)`", cures):
            assert (frontend / f"{name}.py").is_file() or (frontend / name).is_dir(), name
        for name in re.findall(r"`([^`]+)`", tests):
            places = (f"unit/frontend/test_torch_{name}.py", f"{name}.py")
            assert any((_ROOT / "tests" / place).is_file() for place in places), name


@pytest.mark.parametrize("page", ["adding-a-pass.md", "adding-an-operator.md", "several-graphs.md"])
def test_documented_code_runs(page: str, tmp_path: Path) -> None:
    text = (_ROOT / "docs" / page).read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert blocks
    for number, block in enumerate(blocks):
        module = tmp_path / f"block_{number}.py"
        module.write_text(block, encoding="utf-8")
        runpy.run_path(str(module))


def test_words_stand_where_their_page_says() -> None:
    """Files and folders that the page of words names exist, and classes are of that package."""
    rooms = {
        "The executable": "schema",
        "The compiler": "compiler/sambac",
        "The runtime": "runtime/sambarun",
        "The floor of the Python APIs": "host/sambahost",
        "The SambaFlow API": "sambaflow/samba",
    }
    page = (_ROOT / "docs" / "words.md").read_text("utf-8")
    parts = re.findall(r"^## (.+?)$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert [title for title, _ in parts] == [*rooms]
    for title, text in parts:
        cells = re.findall(r"^\|.*\|(.*)\|$", text, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", " ".join(cells)):
            package, _, rest = name.partition(".")
            if package in ("pef", "sambarun") and rest[:1].isupper():
                cls, _, field = rest.partition(".")
                known = getattr(importlib.import_module(package), cls)
                assert not field or field in {each.name for each in dataclasses.fields(known)}, name
            elif "/" in name or name.endswith(".py"):
                assert [*(_ROOT / rooms[title]).glob(name)], name
