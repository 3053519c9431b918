"""Training from the command line: runs over data, evaluation, checkpoints, what is refused."""

from __future__ import annotations

import csv
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from commands import started
from safetensors import safe_open
from training_programs import linear_regression

from samba_cli import training

_ROWS = 50
_ALL = ["--input", "*=random"]
_WEIGHTS = np.array([[1], [-2], [3]], np.float32)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A linear regression with SGD and momentum: x [4, 3], y [4, 1]."""
    path = tmp_path / "line.pef"
    linear_regression().program().save(path)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """50 rows of x and of y = x @ (1, -2, 3) + 0.5."""
    return _store(tmp_path / "train.npz", _ROWS)


def _store(path: Path, rows: int, **others: np.ndarray) -> Path:
    x = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
    np.savez(path, **{"x": x, "y": x @ _WEIGHTS + np.float32(0.5), **others})
    return path


def _content(path: Path) -> tuple[dict[str, str], dict[str, list[float]]]:
    """The metadata and the tensors of a checkpoint."""
    with safe_open(path, "numpy") as file:
        names = file.keys()
        return file.metadata(), {name: file.get_tensor(name).tolist() for name in names}


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_run_says_how_it_went(
    sambarun: Callable, program: Path, data: Path, tmp_path: Path
) -> None:
    log, saved = tmp_path / "log.csv", tmp_path / "line.safetensors"
    result = sambarun(
        program, "--steps", 60, "--data", data, "--shuffle", 0, "--hyperparam", "lr=0.02",
        "--log-csv", log, "--save", saved,
    )  # fmt: skip
    assert (result.code, result.err) == (0, "")
    first, loss, state, memory, rows = result.out.splitlines()
    assert first.startswith(f"{program}: 60 steps (5 epochs of 12 batches) in ")
    assert loss.endswith(" (mean of the last 12 steps)")
    assert state == f"{saved}: the state after step 60"
    assert memory.startswith("memory: HBM ")
    assert memory.endswith(" beside them")
    assert rows == f"{log}: 60 rows"
    table = _rows(log)
    assert list(table[0]) == ["step", "epoch", "loss", "sgd.lr"]
    assert [int(row["step"]) for row in table] == list(range(1, 61))
    assert [table[index]["epoch"] for index in (0, 11, 12, 59)] == ["1", "1", "2", "5"]
    assert float(table[-1]["loss"]) < 0.01 < float(table[0]["loss"])


@pytest.mark.parametrize("shuffle", [[], ["--shuffle", 1]])
def test_shuffled_epochs_have_other_batches(
    sambarun: Callable, program: Path, data: Path, tmp_path: Path, shuffle: list[object]
) -> None:
    words = ["--steps", 24, "--data", data, "--hyperparam", "lr=0", *shuffle]
    sambarun(program, *words, "--log-csv", tmp_path / "log.csv")
    losses = [row["loss"] for row in _rows(tmp_path / "log.csv")]
    # Nothing is learned, so equal batches have equal losses.
    assert (losses[:12] != losses[12:]) is bool(shuffle)


def test_a_continued_run_is_the_run_that_was_not_interrupted(
    sambarun: Callable, program: Path, data: Path, tmp_path: Path
) -> None:
    words = ["--data", data, "--hyperparam", "drop.p=0.3"]
    whole, parts = tmp_path / "whole.csv", tmp_path / "parts.csv"
    saved = [tmp_path / f"{number}.safetensors" for number in range(3)]
    sambarun(program, *words, "--shuffle", 4, "--steps", 30, "--log-csv", whole, "--save", saved[0])
    sambarun(program, *words, "--shuffle", 4, "--steps", 17, "--log-csv", parts, "--save", saved[1])
    done = sambarun(
        program, "--data", data, "--steps", 13, "--log-csv", parts,
        "--load", saved[1], "--save", saved[2],
    )  # fmt: skip
    assert done.code == 0, done.err
    assert parts.read_text() == whole.read_text()
    assert _content(saved[2]) == _content(saved[0])


def test_a_continued_run_refuses_a_log_that_is_none(
    sambarun: Callable, program: Path, data: Path, tmp_path: Path
) -> None:
    saved = tmp_path / "saved.safetensors"
    sambarun(program, "--data", data, "--steps", 1, "--save", saved)
    for content in (b"\xff\x00\xfe", b"a,b\n", b'step,"' + b"x" * 200_000, b"step\0\r\r"):
        log = tmp_path / "notes.csv"
        log.write_bytes(content)
        words = ("--data", data, "--steps", 1, "--load", saved, "--log-csv", log)
        done = sambarun(program, *words)
        assert (done.code, done.out) == (2, ""), content
        assert done.err.startswith(f"Error: {log} ")
        assert done.err.endswith("give another file.\n")
        assert log.read_bytes() == content


def test_epochs_are_the_steps_of_all_batches(
    sambarun: Callable, program: Path, data: Path, tmp_path: Path
) -> None:
    """Alone, and where a run goes on: then they are further ones."""
    words = ["--data", data, "--shuffle", 4, "--hyperparam", "drop.p=0.3"]
    saved = [tmp_path / f"{number}.safetensors" for number in range(3)]
    logs = [tmp_path / f"{name}.csv" for name in ("whole", "parts")]
    sambarun(program, *words, "--steps", 36, "--log-csv", logs[0], "--save", saved[0])
    first = sambarun(program, *words, "--epochs", 2, "--log-csv", logs[1], "--save", saved[1])
    assert first.out.startswith(f"{program}: 24 steps (2 epochs of 12 batches) in ")
    rest = sambarun(
        program, "--data", data, "--epochs", 1, "--log-csv", logs[1], "--load", saved[1],
        "--save", saved[2], "--eval", "--data", data,
    )  # fmt: skip
    assert (rest.code, rest.err) == (0, "")
    assert f"{data}: 50 rows, loss " in rest.out
    assert logs[1].read_text() == logs[0].read_text()
    assert _content(saved[2]) == _content(saved[0])


@pytest.mark.parametrize(
    ("epochs", "batches", "accumulate", "steps"),
    [(1, 12, None, 12), (3, 12, 1, 36), (3, 12, 4, 9), (1, 5, 2, 3), (2, 5, 2, 5), (1, 3, 8, 1)],
)
def test_a_step_of_several_batches_ends_an_epoch_or_runs_into_the_next(
    epochs: int, batches: int, accumulate: int | None, steps: int
) -> None:
    words = {"steps": None, "epochs": epochs, "accumulate": accumulate}
    assert training._steps(words, SimpleNamespace(count=batches)) == steps


def test_evaluation_after_training_and_of_a_checkpoint(
    sambarun: Callable, program: Path, data: Path, tmp_path: Path
) -> None:
    test = _store(tmp_path / "test.npz", 10)
    saved, out = tmp_path / "line.safetensors", tmp_path / "out.npz"
    words = ["--steps", 60, "--data", data, "--hyperparam", "lr=0.02", "--save", saved]
    trained = sambarun(program, *words, "--eval", "--data", test)
    assert trained.code == 0, trained.err
    told = trained.out.splitlines()[-1]
    assert told.startswith(f"{test}: 10 rows, loss ")
    assert told.endswith(" (first 8 rows)")
    later = sambarun(program, "--load", saved, "--eval", "--data", test, "--output", out)
    assert later.out.splitlines() == [told, f"{out}: prediction"]
    with np.load(out) as found, np.load(test) as given:
        np.testing.assert_allclose(found["prediction"], given["y"], atol=0.2)
        assert found["prediction"].shape == (10, 1)


def test_fewer_rows_than_a_batch_can_be_evaluated(
    sambarun: Callable, program: Path, tmp_path: Path
) -> None:
    test = _store(tmp_path / "test.npz", 3)
    result = sambarun(program, "--eval", "--data", test)
    assert result.out.splitlines() == [
        f"{test}: 3 rows",
        "There are no averages: a full batch has 4 rows.",
    ]


class TestNumbersThatAreNone:
    """A loss that is NaN or infinite ends the run; what was kept before it stays."""

    @pytest.fixture
    def bad(self, tmp_path: Path) -> Path:
        """Data whose row 18, in the fifth step, is NaN."""
        path = _store(tmp_path / "bad.npz", _ROWS)
        with np.load(path) as arrays:
            x, y = arrays["x"], arrays["y"]
        y[18] = np.nan
        np.savez(path, x=x, y=y)
        return path

    def test_names_step_and_loss(self, sambarun: Callable, program: Path, bad: Path) -> None:
        result = sambarun(program, "--steps", 9, "--data", bad)
        assert (result.code, result.out) == (2, "")
        said = f"Error: Step 5: 'loss' is nan, and so is some of y. Mend {bad}.\n"
        assert result.err == said

    def test_names_what_may_help(self, sambarun: Callable, program: Path, data: Path) -> None:
        result = sambarun(program, "--steps", 99, "--data", data, "--hyperparam", "lr=1e4")
        assert result.code == 2
        assert "'loss' is inf. A smaller learning rate (--hyperparam lr=...)" in result.err

    def test_keeps_the_last_state(
        self, sambarun: Callable, program: Path, bad: Path, data: Path, tmp_path: Path
    ) -> None:
        saved, good = tmp_path / "bad.safetensors", tmp_path / "good.safetensors"
        result = sambarun(program, "--steps", 9, "--data", bad, "--save", saved, "--save-every", 4)
        assert result.code == 2
        assert f"{saved} holds the state after step 4." in result.err
        sambarun(program, "--steps", 4, "--data", data, "--save", good)
        assert _content(good) == _content(saved)

    def test_keeps_the_first_state(
        self, sambarun: Callable, program: Path, bad: Path, tmp_path: Path
    ) -> None:
        saved = tmp_path / "bad.safetensors"
        result = sambarun(program, "--steps", 9, "--data", bad, "--save", saved)
        assert f"{saved} holds the state after step 0." in result.err
        before = saved.read_bytes()
        again = sambarun(program, "--steps", 9, "--data", bad, "--save", saved)
        assert f"{saved} is as it was before." in again.err
        assert saved.read_bytes() == before

    def test_an_update_that_is_none_is_not_kept(
        self, sambarun: Callable, program: Path, data: Path, tmp_path: Path
    ) -> None:
        saved = tmp_path / "line.safetensors"
        words = ["--steps", 1, "--data", data, "--hyperparam", "lr=1e39", "--save", saved]
        result = sambarun(program, *words)
        assert result.code == 2
        assert "After step 1, 'w' holds NaN or infinite numbers." in result.err
        assert f"{saved} holds the state after step 0." in result.err


def test_an_interrupt_keeps_the_state(program: Path, data: Path, tmp_path: Path) -> None:
    saved, log = tmp_path / "line.safetensors", tmp_path / "log.csv"
    command = [sys.executable, "-c", "from samba_cli.sambarun import main; main()", program]
    words = ["--steps", 10**9, "--data", data, "--save", saved, "--log-csv", log]
    with started((*command, *words)) as process:
        while not log.exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "Interrupted.\n")
    steps = len(_rows(log))
    assert f"{saved}: the state after step {steps}; go on with --load {saved} --steps " in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--steps", "1"], "--steps: give the data to train on"),
        (["--data", "{data}"], "--data: of use only with --steps, --epochs or --eval."),
        (["--steps", "1", "--data", "absent.npz"], "absent.npz does not exist."),
        (["--steps", "1", "--data", "{npy}"], "holds one array (.npy); training data are an .npz"),
        (["--steps", "1", "--data", "{junk}"], "is no array file, or damaged"),
        (["--steps", "1", "--data", "{few}"], "few.npz: 3 rows, and a step takes 4"),
        (["--steps", "1", "--data", "{data}", "--accumulate", "2"], "compile the model with --acc"),
        (["--steps", "1", "--data", "{data}", "--hyperparam", "rl=1"], "no hyperparameter 'rl'"),
        (["--steps", "1", "--data", "{data}", "--hyperparam", "lr"], "expected NAME=NUMBER"),
        (["--steps", "1", "--data", "{data}", "--hyperparam", "lr=inf"], "has to be finite"),
        (["--steps", "1", "--data", "{data}", "--hyperparam", "LR=1"], "did you mean 'lr'?"),
        (["--steps", "1", "--data", "{data}", "--load", "."], ". is a folder; give a .safetensors"),
        (["--steps", "1", "--data", "{data}", "--load", "/dev/null"], "/dev/null is a device or"),
        (["--steps", "1", "--data", "{data}", "--save", "s.pt"], "give it that ending"),
        (["--train", "--save", "s.pt"], "a checkpoint is a .safetensors file"),
        (["--steps", "1", "--data", "{data}", "--init", "zeros"], "expected random:SEED"),
        (["--steps", "1", "--data", "{data}", "--load", "a", "--init", "b"], "one of them only"),
        (["--steps", "1", "--data", "{data}", "--save", "no/s"], "the folder no does not exist"),
        (["--steps", "1", "--data", "{data}", "--save", "{program}"], "would destroy it"),
        (["--steps", "1", "--data", "{data}", "--save", "{data}"], "would destroy it"),
        (["--steps", "1", "--data", "{data}", "--save", "a", "--log-csv", "a"], "named twice"),
        (["--steps", "1", "--data", "{data}", "--load", "a", "--log-csv", "a"], "would destroy it"),
        (["--steps", "1", "--data", "{data}", "--rtol", "1"], "--rtol: of use only with --expect"),
        (["--steps", "1", "--data", "{data}", "--shuffle", f"{1 << 63}"], "is not in the range"),
        (["--eval", "--data", "{data}", "--hyperparam", "lr=1"], "--eval reads none"),
        # Words that a run of something else would heed.
        (
            [*_ALL, "--graph", "eval", "--train"],
            "--train: what was selected belongs to the graph 'eval'",
        ),
        ([*_ALL, "--sections", "FWD", "--hyperparam", "lr=1"], "lr: nothing that runs reads it"),
        ([*_ALL, "--hyperparam", "p=0", "--sections", "FWD"], "p: nothing that runs reads it"),
        ([*_ALL, "--sections", "FWD", "--section-ids", "2"], "types FWD and ids 2: nothing would"),
        ([*_ALL, "--sections", "FWD,"], "--sections FWD,: expected types"),
        # What they keep would be the state of several steps.
        ([*_ALL, "--iterations", "1", "--save", "s.safetensors"], "the state after one run"),
        ([*_ALL, "--profile", "p.json", "--save", "s.safetensors"], "the state after one run"),
        (["--epochs", "1"], "--epochs: give the data to train on"),
        (["--epochs", "1", "--steps", "1", "--data", "{data}"], "--steps, --epochs: give one of"),
        (["--epochs", "0", "--data", "{data}"], "0 is not in the range x>=1"),
        (["--steps", "0", "--data", "{data}"], "0 is not in the range x>=1"),
    ],
)
def test_wrong_words(
    sambarun: Callable, program: Path, data: Path, words: list[str], said: str
) -> None:
    folder = data.parent
    places = {name: folder / name for name in ("npy.npy", "junk", "few.npz")}
    np.save(places["npy.npy"], np.ones(4, np.float32))
    places["junk"].write_bytes(b"\x93junk")
    _store(places["few.npz"], 3)
    named = {path.stem: path for path in places.values()} | {"data": data, "program": program}
    before = program.read_bytes()
    result = sambarun(program, *(word.format(**named) for word in words))
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert "Traceback" not in result.err
    assert program.read_bytes() == before


def test_all_that_is_wrong_with_the_data_is_said(
    sambarun: Callable, program: Path, tmp_path: Path
) -> None:
    path = tmp_path / "odd.npz"
    np.savez(path, X=np.ones((8, 3)), y=np.ones((8, 2), np.float32))
    result = sambarun(program, "--steps", 1, "--data", path)
    assert result.code == 2
    first, second = result.err.splitlines()
    assert first.startswith(f"Error: {path}: Array 'x' is missing (did you mean 'X'?): float32[N,")
    assert second == f"{path}: Array 'y' has shape [8, 2]; [N, 1] was expected."


def test_converted_elements_are_noted(
    sambarun: Callable, program: Path, data: Path, tmp_path: Path
) -> None:
    with np.load(data) as arrays:
        np.savez(tmp_path / "wide.npz", x=arrays["x"].astype(np.float64), y=arrays["y"])
    result = sambarun(program, "--steps", 1, "--data", tmp_path / "wide.npz")
    assert result.code == 0
    assert result.err == f"Note: {tmp_path}/wide.npz: x: float64 is converted to float32.\n"


def test_weights_that_are_there_are_not_made_up(
    sambarun: Callable, program: Path, data: Path
) -> None:
    words = ("--steps", 1, "--data", data)
    plain, made_up = sambarun(program, *words), sambarun(program, *words, "--init", "random:3")
    assert made_up.err == "Note: --init: the program has all its weights; none are made up.\n"
    assert made_up.out.splitlines()[1] == plain.out.splitlines()[1]


def test_list_shows_what_is_trained(sambarun: Callable, program: Path) -> None:
    out = sambarun(program, "--list").out
    assert "  minimises loss\n  trains    2 parameters (4 elements)\n" in out
    assert "  sections  train 1 FWD, 1 BCKWD, 1 OPT; eval 1 FWD\n" in out
    assert "Outputs of 'eval'" in out
    assert "      0.1  sgd.lr\n" in out
    rows = [line.split() for line in out.partition("Sections\n")[2].splitlines()]
    read = {row[1]: " ".join(row[3:5]) for row in rows if len(row) > 5 and row[0].isdecimal()}
    # Parameters are weights, though they change, and constants are.
    assert (read["FWD"], read["OPT"]) == ("28 B", "16 B")


def test_a_single_step_and_an_evaluation_by_hand(
    sambarun: Callable, program: Path, tmp_path: Path
) -> None:
    data = _store(tmp_path / "batch.npz", 4)
    step = sambarun(program, "--inputs", data, "--hyperparam", "lr=0.5")
    assert (step.code, step.err) == (0, "")
    assert [line.split()[0] for line in step.out.splitlines()[2:]] == ["loss"]
    evaluated = sambarun(program, "--inputs", data, "--sections", "FWD")
    names = [line.split()[0] for line in evaluated.out.splitlines()[2:]]
    assert names == ["prediction", "loss", "average"]


def test_an_inference_program_does_not_train(
    sambarun: Callable, pef_file: Path, data: Path
) -> None:
    result = sambarun(pef_file, "--steps", 1, "--data", data)
    assert result.code == 2
    assert "was compiled for inference; compile the model with --train." in result.err
