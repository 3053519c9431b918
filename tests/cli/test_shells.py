"""Completion as shells ask for it, and how much the commands print."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from training_programs import linear_regression

_TOOLS = ("sambac", "sambarun")


def _command(tool: str) -> str:
    found = Path(sys.executable).with_name(tool)
    assert found.exists()
    return str(found)


def _asked(tool: str, **words: str) -> str:
    """What a tool answers when a shell asks it by the environment."""
    environment = os.environ | {name: word.replace("TOOL", tool) for name, word in words.items()}
    done = subprocess.run(
        [_command(tool)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("tool", _TOOLS)
@pytest.mark.parametrize(
    ("shell", "answer"),
    [("bash", "plain,--version"), ("zsh", "plain\n--version\n"), ("fish", "plain,--version")],
)
def test_each_shell_is_given_a_script_and_answers(tool: str, shell: str, answer: str) -> None:
    variable = f"_{tool.upper()}_COMPLETE"
    script = _asked(tool, **{variable: f"{shell}_source"})
    assert f"{variable}={shell}_complete" in script
    typed = {"COMP_WORDS": "TOOL --versi", "COMP_CWORD": "1" if shell != "fish" else "--versi"}
    assert answer in _asked(tool, **{variable: f"{shell}_complete", **typed})


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("sambarun net.pef --sec", ["--section-ids", "--sections"]),
        ("sambac comp", ["compile"]),
        ("sambac compile net.onnx --mapp", ["--mapping"]),
        ("sambac compile net.onnx --mapping ", ["section", "spatial"]),
    ],
)
def test_bash_completes(line: str, found: list[str], tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    tool, *_ = line.split()
    script = f"""
        eval "$(_{tool.upper()}_COMPLETE=bash_source {tool})"
        COMP_WORDS=({line}{' ""' if line.endswith(" ") else ""})
        COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
        $(complete -p {tool} | sed 's/.*-F \\([^ ]*\\).*/\\1/') {tool}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [bash, "--norc", "-c", script],
        env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert (done.stderr, sorted(done.stdout.split())) == ("", found)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("sambarun line.pef --sections b", ["BCKWD"]),
        ("sambarun line.pef --sections FWD,op", ["FWD,OPT"]),
        ("sambarun --quiet line.pef --section-ids ", ["0", "1", "2", "3"]),
        ("sambarun line.pef --graph e", ["eval"]),
        ("sambarun line.pef --input x", ["x=random", "x=ones"]),
        ("sambarun line.pef --steps 1 --hyperparam sgd.l", ["sgd.lr=0.1"]),
        ("sambarun line.pef --provider CPU", ["CPUExecutionProvider"]),
        ("sambarun absent.pef --sections ", []),
        ("sambarun other.txt --hyperparam ", []),
        ("sambac inspect line.pef --sections FWD,OP", ["FWD,OPT"]),
        ("sambac extract line.pef --section ", ["0", "1", "2", "3"]),
        ("sambac explain line.pef average", ["average"]),
        ("sambac scale line.pef --graph t", ["train"]),
        ("sambac arch sn3", ["sn30"]),
        ("sambac compile net.onnx --arch sn1", ["sn10"]),
        ("sambac compile net.onnx --optimizer adamw", ["adamw"]),
        ("sambac opt net.onnx --passes simplify_no,empty_s", ["simplify_no,empty_sums"]),
    ],
)
def test_what_stands_in_the_file_on_the_line_is_completed(
    line: str, found: list[str], tmp_path: Path
) -> None:
    linear_regression().program().save(tmp_path / "line.pef")
    (tmp_path / "other.txt").write_text("no PEF")
    typed = line.replace("line.pef", str(tmp_path / "line.pef"))
    typed = typed.replace("other.txt", str(tmp_path / "other.txt"))
    tool, count = line.split()[0], len(typed.split()) - (not line.endswith(" "))
    asked = {f"_{tool.upper()}_COMPLETE": "bash_complete"}
    answer = _asked(tool, **asked, COMP_WORDS=typed, COMP_CWORD=str(count))
    assert [row.removeprefix("plain,") for row in answer.split()] == found


def test_names_of_files_are_left_to_the_shell() -> None:
    for words, number in (("TOOL ", "1"), ("TOOL net.pef --load ", "3")):
        answer = _asked(
            "sambarun", _SAMBARUN_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=number
        )
        assert answer == "file,\n"


def test_quiet_commands_print_errors_alone(
    sambac: Callable, sambarun: Callable, model: Path, tmp_path: Path
) -> None:
    target = tmp_path / "net.pef"
    assert sambac("compile", model, "-o", target, "-q") == type(sambac("verify", target, "-q"))(
        0, "", ""
    )
    run = sambarun(target, "--quiet", "--input", "x=random", "--output", tmp_path / "y.npz")
    assert (run.code, run.out, run.err) == (0, "", "")
    # A word that cannot be parsed ends the command before its contexts are there.
    for words in (("--input", "z=random"), ("--iterations", "0"), ("--no-such",)):
        wrong = sambarun(target, "-q", *words)
        assert (wrong.code, wrong.out) == (2, "")
        assert "Error: " in wrong.err
    for words in (("-O", "7"), ("--no-such",), ("--input", "x")):
        bad = sambac("compile", model, "-o", target, "-q", *words)
        assert (bad.code, bad.out) == (2, "")
        assert "Error: " in bad.err


@pytest.mark.parametrize(
    "words",
    [
        ("sambac", "compile", "MODEL", "-o", "-"),
        ("sambac", "extract", "PEF", "--section", "0", "-o", "-"),
        ("sambarun", "PEF", "--input", "x=ones", "--output", "-"),
        ("sambarun", "PEF", "--input", "x=ones", "--profile", "-"),
        ("sambarun", "PEF", "--input", "x=ones", "--save", "-"),
        ("sambarun", "PEF", "--steps", "1", "--data", "d.npz", "--save", "-"),
        ("sambarun", "PEF", "--steps", "1", "--data", "d.npz", "--log-csv", "-"),
        ("sambarun", "PEF", "--eval", "--data", "d.npz", "--output", "-"),
    ],
    ids=" ".join,
)
def test_no_file_is_called_like_the_output_of_the_command(
    words: tuple[str, ...], model: Path, pef_file: Path, tmp_path: Path
) -> None:
    tool, *rest = words
    names = {"MODEL": str(model), "PEF": str(pef_file)}
    before = sorted(path.name for path in tmp_path.iterdir())
    done = subprocess.run(
        [_command(tool), *(names.get(word, word) for word in rest)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("Error: - is no file name here")
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", ["res", "res.csv", "res.npz.txt", "res.NPZ"])
def test_an_output_of_another_kind_is_refused_before_anything_runs(
    sambarun: Callable, pef_file: Path, tmp_path: Path, name: str
) -> None:
    result = sambarun(pef_file, "--input", "x=ones", "--output", tmp_path / name)
    assert result.code == 2
    assert "its ending says what to write; give .npz, .npy for a single" in result.err
    assert not (tmp_path / name).exists()
