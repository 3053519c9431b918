"""What is no name of a file is a sentence, wherever Python code may give one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from training_programs import linear_regression

import pef
import sambac
import sambarun
from sambac.arch import load_device

NULL = "with a null character in it"
ODD: Mapping[str, tuple[object, str]] = {
    "null": ("a\0b.pef", f" is 'a\\x00b.pef', {NULL}; "),
    "null of a Path": (Path("a\0b.pef"), f" is 'a\\x00b.pef', {NULL}; "),
    "empty": ("", " is '', which is empty; "),
    "bytes": (b"x.pef", " is b'x.pef'; "),
    "number": (3, " is 3; "),
}


@pytest.fixture(scope="module")
def program() -> pef.Program:
    return linear_regression().program()


@pytest.fixture(scope="module")
def executable(program: pef.Program) -> sambarun.Executable:
    return sambarun.load(program)


def _compiled(option: str) -> Callable[..., object]:
    return lambda path, *_: sambac.CompileOptions(level="O1", **{option: path})


CALLS: Mapping[str, tuple[str, Callable[..., object]]] = {
    "compile": ("model", lambda path, *_: sambac.compile(path)),
    "arch": ("arch", _compiled("arch")),
    "tuning": ("tuning", _compiled("tuning")),
    "fusion_rules": ("fusion_rules", _compiled("fusion_rules")),
    "open": ("path", lambda path, *_: pef.open(path)),
    "verify": ("path", lambda path, *_: pef.verify(path)),
    "write": ("path", lambda path, program, _: pef.write(program, path)),
    "Program.save": ("path", lambda path, program, _: program.save(path)),
    "load": ("source", lambda path, *_: sambarun.load(path)),
    "Executable.save": ("path", lambda path, _, executable: executable.save(path)),
    "Executable.load": ("path", lambda path, _, executable: executable.load(path)),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("odd", ODD)
def test_odd_paths(
    call: str, odd: str, program: pef.Program, executable: sambarun.Executable
) -> None:
    (path, said), (name, act) = ODD[odd], CALLS[call]
    if (call, odd) in (("compile", "bytes"), ("compile", "number")):
        said = "is no model"
        name = ""
    with pytest.raises(
        (sambac.CompileError, pef.PefError, sambarun.RunError), match=re.escape(f"{name}{said}")
    ):
        act(path, program, executable)


def test_a_device_may_be_given_as_a_path_object(tmp_path: Path) -> None:
    with pytest.raises(sambac.CompileError, match=r"There is no architecture file '.*mine.toml'"):
        load_device(tmp_path / "mine.toml")
