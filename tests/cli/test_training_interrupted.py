"""Training runs that are cut off: by Ctrl-C, by kill -9, by a disk that is full."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import started
from safetensors import safe_open
from safetensors.numpy import load_file
from training_programs import linear_regression

_COMMAND = [sys.executable, "-c", "from samba_cli.sambarun import main; main()"]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "line.pef"
    linear_regression().program().save(path)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    x = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    np.savez(tmp_path / "train.npz", x=x, y=x @ np.array([[1], [-2], [3]], np.float32))
    return tmp_path / "train.npz"


def _words(program: Path, data: Path, saved: Path, *more: object) -> list[str]:
    words = (program, "--data", data, "--save", saved, "--hyperparam", "drop.p=0.3", *more)
    return [*_COMMAND, *map(str, words)]


def _steps(path: Path) -> int:
    with safe_open(path, "numpy") as file:
        return int(file.metadata()["steps"])


def _wait_for(path: Path, steps: int, process: subprocess.Popen[str]) -> None:
    """Wait until a checkpoint has come so far; whenever it is there, it is whole."""
    while not path.exists() or _steps(path) < steps:
        assert process.poll() is None
        time.sleep(0.002)


_ENDS = {signal.SIGINT: (130, "Interrupted.\n"), signal.SIGTERM: (143, "Terminated.\n")}


@pytest.mark.parametrize("signal_", [*_ENDS, signal.SIGKILL], ids=["Ctrl-C", "kill", "kill -9"])
def test_what_is_left_goes_on_as_if_nothing_had_happened(
    sambarun: Callable, program: Path, data: Path, tmp_path: Path, signal_: signal.Signals
) -> None:
    saved, whole = tmp_path / "line.safetensors", tmp_path / "whole.safetensors"
    shuffle = ("--shuffle", 3)
    command = _words(program, data, saved, *shuffle, "--steps", 10**9, "--save-every", 1)
    for more in (3, 40, 17):
        done = _steps(saved) if saved.exists() else 0
        with started([*command, "--load", saved] if done else command) as process:
            _wait_for(saved, done + more, process)
            process.send_signal(signal_)
            out, err = process.communicate(timeout=60)
        if signal_ in _ENDS:
            assert (process.returncode, err) == _ENDS[signal_]
            assert f"{saved}: the state after step {_steps(saved)}; go on with" in out
    steps = _steps(saved)
    expected = sambarun(
        program, "--data", data, "--hyperparam", "drop.p=0.3", *shuffle,
        "--steps", steps, "--save", whole,
    )  # fmt: skip
    assert expected.code == 0, expected.err
    assert saved.read_bytes() == whole.read_bytes()
    temporary = [path for path in tmp_path.iterdir() if path.suffix == ".tmp"]
    # A process that is killed while it writes cannot clean up; the next one that writes does.
    assert len(temporary) <= (0 if signal_ in _ENDS else 1)


def test_a_log_holds_every_step_of_the_checkpoint_beside_it(
    sambarun: Callable, program: Path, data: Path, tmp_path: Path
) -> None:
    saved, log = tmp_path / "line.safetensors", tmp_path / "loss.csv"
    command = _words(program, data, saved, "--steps", 10**9, "--save-every", 7, "--log-csv", log)
    for _ in range(3):
        done = _steps(saved) if saved.exists() else 0
        with started([*command, "--load", saved] if done else command) as process:
            _wait_for(saved, done + 20, process)
            process.kill()
            process.communicate(timeout=60)
    result = sambarun(program, "--data", data, "--load", saved, "--steps", 1, "--log-csv", log)
    assert result.code == 0, result.err
    numbers = [int(row.partition(",")[0]) for row in log.read_text().splitlines()[1:]]
    assert numbers == [*range(1, _steps(saved) + 2)]


def test_a_disk_that_fills_up_leaves_the_old_checkpoint(
    sambarun: Callable, program: Path, data: Path, tmp_path: Path
) -> None:
    saved = tmp_path / "line.safetensors"
    words = ("--data", data, "--save", saved, "--steps", 5)
    assert sambarun(program, *words).code == 0
    before = saved.read_bytes()

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) - 1,) * 2)

    command = _words(program, data, saved, "--steps", 5, "--save-every", 1, "--load", saved)
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=limit)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"Error: {saved} cannot be written: File too large\n"
    assert saved.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "line.pef", "line.safetensors", "train.npz",
    ]  # fmt: skip
    assert set(load_file(saved)) >= {"w", "b", "average"}
    assert sambarun(program, *words, "--load", saved).code == 0


def test_a_log_without_room_costs_no_training(program: Path, data: Path, tmp_path: Path) -> None:
    saved, log = tmp_path / "line.safetensors", tmp_path / "log.csv"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000,) * 2)

    words = ("--steps", 5000, "--save-every", 10_000, "--log-csv", log)
    command = _words(program, data, saved, *words)
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=limit)
    assert (done.returncode, done.stdout) == (2, "")
    held = f"{saved} holds the state after step {_steps(saved)}"
    assert done.stderr == f"Error: {log} cannot be written: File too large. {held}.\n"
    assert _steps(saved) >= 100


def test_a_run_that_goes_on_elsewhere_says_so(
    sambarun: Callable, program: Path, data: Path, tmp_path: Path
) -> None:
    """With data of fewer batches; the steps of the same data say nothing."""
    saved, fewer = tmp_path / "saved.safetensors", tmp_path / "fewer.npz"
    np.savez(fewer, **{name: rows[:10] for name, rows in np.load(data).items()})
    words = ("--steps", 5, "--save", saved)
    sambarun(program, "--data", data, *words)
    same = sambarun(program, "--data", data, *words, "--load", saved)
    assert (same.code, same.err) == (0, "")
    other = sambarun(program, "--data", fewer, *words, "--load", saved)
    assert other.code == 0
    assert other.err == (
        "Note: --load: the 10 steps before were made with another --accumulate, or with other "
        "data than these of 2 batches; this run goes on with epoch 1, batch 0, both counted "
        "from 0.\n"
    )


@pytest.fixture
def classifies(sambac: Callable, tmp_path: Path) -> Path:
    """A program of three classes, and batches of 2 rows."""
    model, program = tmp_path / "net.onnx", tmp_path / "net.pef"
    text = (
        '<ir_version: 10, opset_import: ["" : 17]> g (float[2,3] x) => (float[2,3] y) '
        "<float[3,3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}> { y = MatMul (x, w) }"
    )
    onnx.save(onnx.parser.parse_model(text), model)
    words = ("--train", "--loss", "cross_entropy:y,labels", "--optimizer", "sgd", "-o", program)
    assert sambac("compile", model, *words).code == 0
    return program


def test_an_index_out_of_range_names_the_input(
    sambarun: Callable, classifies: Path, tmp_path: Path
) -> None:
    program, data = classifies, tmp_path / "data.npz"
    np.savez(data, x=np.ones((4, 3), np.float32), labels=np.array([0, 1, 2, 3]))
    classes, cure = "(the classes are 0 to 2)", "correct what is indexed with."
    for words, step in ((["--steps", 9], "Step 2: "), (["--eval"], "")):
        result = sambarun(program, *words, "--data", data)
        assert result.code == 2
        assert result.err.splitlines() == [
            f"Note: {data}: 'labels' holds 0 to 3 (the classes are 0 to 2).",
            f"Error: {step}An index is out of range: 'labels' holds 2 to 3 {classes}; {cure}",
        ]


def test_a_step_that_fails_costs_none_of_those_before(
    sambarun: Callable, classifies: Path, tmp_path: Path
) -> None:
    program, data = classifies, tmp_path / "data.npz"
    np.savez(data, x=np.ones((4, 3), np.float32), labels=np.array([0, 1, 2, 3]))
    kept, whole = tmp_path / "kept.safetensors", tmp_path / "whole.safetensors"
    result = sambarun(program, "--steps", 9, "--data", data, "--save", kept)
    assert result.err.endswith(
        f"correct what is indexed with. {kept} holds the state after step 1.\n"
    )
    np.savez(data, x=np.ones((4, 3), np.float32), labels=np.array([0, 1, 2, 2]))
    words = ("--data", data, "--save")
    assert sambarun(program, "--load", kept, "--steps", 2, *words, kept).code == 0
    assert sambarun(program, "--steps", 3, *words, whole).code == 0
    assert kept.read_bytes() == whole.read_bytes()
