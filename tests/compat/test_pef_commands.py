"""Every stored PEF, real or written by hand, gets a result or a sentence from every command."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from commands import sambac

import pef
import sambarun
from pef import dtypes

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.rglob("*.pef"))
OTHER = FOLDER / "format_0_2.pef"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize(
    "words",
    [
        "inspect FILE",
        "inspect FILE --json",
        "verify FILE",
        "diff FILE OTHER",
        "diff FILE OTHER --json",
        "extract FILE --section 0 -o section.onnx",
    ],
)
def test_the_compilers_commands_understand_it(words: str, path: Path, tmp_path: Path) -> None:
    named = {"FILE": path, "OTHER": OTHER}
    done = sambac(*(named.get(word, word) for word in words.split()), cwd=tmp_path)
    assert done.returncode in (0, 1, 2), done.stderr
    assert (done.returncode == 2) == done.stderr.startswith("Error: ")
    assert not (done.returncode == 2 and any(tmp_path.iterdir()))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_is_run_or_refused(path: Path) -> None:
    """What is not to be run ends in a sentence, wherever the runtime finds out."""
    refusals = suppress(pef.PefError, sambarun.RunError)
    with refusals, sambarun.load(path, threads=1) as executable:
        executable.initialize(1)
        program = executable.program
        for graph in program.graphs:
            symbols = {port.name: program.symbols[port.symbol] for port in graph.inputs}
            given = {name: zeros(symbol) for name, symbol in symbols.items()}
            executable.run(given, graph=graph.name)


def zeros(symbol: pef.Symbol) -> np.ndarray:
    sizes = [size if isinstance(size, int) else 1 for size in symbol.shape or ()]
    return np.zeros(sizes, dtypes.BY_NUMBER[symbol.dtype].storage)


@pytest.mark.parametrize("words", [("--list",), ("--input", "*=ones", "--init", "random:1")])
def test_the_command_refuses_what_keeps_nothing(words: tuple[str, ...]) -> None:
    command = "from samba_cli.sambarun import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", command, str(FOLDER / "format_0_1.pef"), *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if words == ("--list",):
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert done.returncode == 2
        assert "keeps nothing from run to run, not even its argins 'lr'" in done.stderr
