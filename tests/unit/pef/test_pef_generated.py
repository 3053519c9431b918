"""Schema, generated code, dataclasses and columns describe the same thing."""

from __future__ import annotations

import dataclasses
import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import pef
from pef import codec, columns
from pef.container import METADATA_AT, parse_header
from pef.generated import pef_generated
from pef.generated.layout import ROOT, TABLES
from pef.structure import Tree, read

SCHEMA = Path(pef.__file__).parents[1]
needs_flatc = pytest.mark.skipif(shutil.which("flatc") is None, reason="flatc is not installed")


@pytest.fixture
def regenerate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("regenerate", SCHEMA / "regenerate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@needs_flatc
def test_generated_code_is_up_to_date(regenerate: ModuleType) -> None:
    assert regenerate.main(["--check"]) == 0


@needs_flatc
def test_stale_code_is_found(
    regenerate: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    regenerate.GENERATED = tmp_path / "generated"
    assert regenerate.main(["--check"]) == 1
    regenerate.main([])
    assert regenerate.main(["--check"]) == 0
    with (tmp_path / "generated" / "layout.py").open("a") as file:
        file.write("# edited\n")
    capsys.readouterr()
    assert regenerate.main(["--check"]) == 1
    assert "layout.py does not fit pef.fbs: run `make schema`" in capsys.readouterr().err


def test_without_flatc_the_check_says_so(
    regenerate: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI", raising=False)
    assert regenerate.main(["--check"]) == 0
    assert "NOT CHECKED: flatc is missing" in capsys.readouterr().out
    monkeypatch.setenv("CI", "true")
    assert regenerate.main(["--check"]) == 1
    assert regenerate.main([]) == 1
    assert "flatbuffers-compiler" in capsys.readouterr().err


def test_every_field_of_a_program_is_stored() -> None:
    fields = [field.name for field in dataclasses.fields(pef.Program)]
    stored = {*codec.SINGLE, *codec.MANY, "segments"}
    assert stored == set(fields)
    assert stored | {"texts"} == {name for name, _, _ in filter(None, TABLES[ROOT])}


def rows(column: object) -> list[columns.Rows]:
    """All columns below `column` that hold objects."""
    if isinstance(column, columns.Rows):
        return [column, *(row for inner in column.columns.values() for row in rows(inner))]
    if isinstance(column, columns.Lists):
        return rows(column.items)
    return []


def test_columns_stand_in_the_order_of_the_fields() -> None:
    found = [row for column in (codec.SINGLE | codec.MANY).values() for row in rows(column)]
    assert len(found) > 15
    for row in found:
        assert isinstance(row.make, type)
        assert list(row.columns) == [field.name for field in dataclasses.fields(row.make)]


def test_no_table_contains_itself() -> None:
    """The verifier's walk ends because of this."""

    def depth(kind: str, above: tuple[str, ...] = ()) -> int:
        assert kind not in above
        inner = [what for _, what, _ in filter(None, TABLES[kind]) if what in TABLES]
        return 1 + max((depth(what, (*above, kind)) for what in inner), default=0)

    assert depth(ROOT) < 10


def test_flatc_reads_what_the_verifier_reads(path: Path) -> None:
    """flatc's accessors are a second, independent reader of an undamaged file."""
    data = path.read_bytes()
    head = data[: parse_header(memoryview(data)).head_size]
    compare(pef_generated.Program.GetRootAs(head), read(memoryview(head), METADATA_AT))


def compare(accessors: object, tree: Tree) -> None:
    for name, node in tree.items():
        method = name.title().replace("_", "")
        if isinstance(node, dict):
            compare(getattr(accessors, method)(), node)
        else:
            found = getattr(accessors, f"{method}AsNumpy")()
            assert np.array_equal(found, node), name
