"""Training on the command line: words that go together, their values, the loss log, the summary."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from pef.program import Argin
from samba_cli.shell import Wrong
from samba_cli.state_words import hyperparams
from samba_cli.train_options import TrainWords, tell_data_apart, wants_data
from samba_cli.train_progress import LossLog, Tally
from sambarun.train_loop import Run, StepResult
from sambarun.training.data import Cursor

_NOTHING = dict.fromkeys(TrainWords.__annotations__) | {"hyperparams": (), "evaluate": False}
_RUN = (
    "sections",
    "section_ids",
    "inputs",
    "inputs_file",
    "output",
    "expect",
    "iterations",
    "train",
    "graph",
)
_NO_RUN = dict.fromkeys((*_RUN, "profile"))


def words(**given: object) -> dict[str, object]:
    return _NOTHING | _NO_RUN | given


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("--steps 9 --data a --eval --data b", "--steps 9 --data a --eval --eval-data b"),
        ("--eval --data=b --steps 9 --data a", "--eval --eval-data=b --steps 9 --data a"),
        ("--data a --eval", "--data a --eval"),
        ("--data a --data b", "--data a --data b"),
    ],
)
def test_the_data_after_eval_are_its_own(given: str, found: str) -> None:
    assert tell_data_apart(given.split()) == found.split()


def test_what_runs_over_data() -> None:
    assert not wants_data(words(load="x", hyperparams=("lr=1",)))
    assert wants_data(words(steps=1, data="a", save="s", save_every=2, shuffle=0))
    assert wants_data(words(evaluate=True, data="a", output="o"))
    assert wants_data(words(evaluate=True, eval_data="a"))
    assert wants_data(words(evaluate=True, eval_data="a", steps=1, data="b"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"shuffle": 0, "save": "s"}, "--shuffle: of use only in training; add --steps"),
        ({"evaluate": True, "eval_data": "a", "log_csv": "l"}, "--log-csv: of use only in"),
        ({"data": "a"}, "--data: of use only with --steps, --epochs or --eval."),
        ({"steps": 1}, "--steps: give the data to train on: --data FILE.npz."),
        ({"evaluate": True}, "--eval: give the data to evaluate on after it"),
        (
            {"evaluate": True, "data": "a", "eval_data": "b"},
            "--eval: evaluates on one data set, and a and b are",
        ),
        ({"steps": 1, "data": "a", "evaluate": True}, "--eval: give the data to evaluate on"),
        ({"steps": 1, "data": "a", "output": "o"}, "--output: for what --eval gives"),
        ({"steps": 1, "data": "a", "save_every": 2}, "--save-every: say where with --save"),
        (
            {"steps": 1, "data": "a", "inputs": ("x=ones",), "profile": "p"},
            "--input, --profile: not for runs over --data",
        ),
    ],
)
def test_words_that_do_not_go_together(given: dict[str, object], said: str) -> None:
    with pytest.raises(Wrong) as error:
        wants_data(words(**given))
    assert error.value.message.startswith(said)


def test_hyperparameters() -> None:
    assert hyperparams(["lr=0.01", "adamw.beta1=9e-1", "odd=name=2"]) == {
        "lr": 0.01,
        "adamw.beta1": 0.9,
        "odd=name": 2,
    }
    with pytest.raises(Wrong) as error:
        hyperparams(["lr", "lr=fast", "=3", "lr=nan", "p=0.5"])
    assert [line.split(":")[0] for line in error.value.message.splitlines()] == [
        "--hyperparam lr",
        "--hyperparam lr=fast",
        "--hyperparam =3",
        "--hyperparam lr=nan",
    ]


def step(number: int, loss: float = 0.5) -> StepResult:
    return StepResult({"loss": loss}, 0, Cursor(step=number))


def executable(argins: dict[str, float]) -> SimpleNamespace:
    rows = (Argin("sgd.lr", 0, 0.1), Argin("seed", 1, 0.0))
    return SimpleNamespace(
        program=SimpleNamespace(argins=rows), argins={"sgd.lr": 0.1, "seed": 0.0} | argins
    )


def log(path: Path, numbers: range, after: int = 0, **argins: float) -> str:
    rows = LossLog(str(path), executable(argins), after)
    for number in numbers:
        rows.add(step(number, number / 8))
    rows.close()
    return path.read_text()


def test_a_log_has_a_row_for_each_step(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    assert log(path, range(1, 3)) == "step,epoch,loss\n1,1,0.125\n2,1,0.25\n"
    changed = log(path, range(1, 2), **{"sgd.lr": 0.01})
    assert changed == "step,epoch,loss,sgd.lr\n1,1,0.125,0.01\n"


def test_a_log_has_the_norm_of_the_gradients(tmp_path: Path) -> None:
    rows = LossLog(str(tmp_path / "log.csv"), executable({}), 0)
    rows.add(StepResult({"a": 1.0, "b": 2.0}, 4, Cursor(step=9), {"grad_norm": 3.0}))
    rows.close()
    assert (tmp_path / "log.csv").read_text() == "step,epoch,a,b,grad_norm\n9,5,1,2,3\n"


def test_a_continued_run_continues_its_log(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    whole = log(path, range(1, 7))
    log(path, range(1, 6))
    with path.open("a") as file:
        file.write("6,1,0.7")  # a row that was cut off
    assert log(path, range(4, 7), after=3) == whole


def test_a_continued_run_may_have_other_hyperparameters(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    log(path, range(1, 3), seed=4)
    whole = log(path, range(3, 4), after=2, **{"sgd.lr": 0.5})
    assert whole.splitlines() == [
        "step,epoch,loss,sgd.lr,seed",
        "1,1,0.125,0.1,4",
        "2,1,0.25,0.1,4",
        "3,1,0.375,0.5,0",
    ]


@pytest.mark.parametrize("header", ["step,epoch,cost", "step,epoch,loss,sgd.rate", "x", ""])
def test_the_log_of_something_else_is_not_continued(tmp_path: Path, header: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"{header}\n1,1,1\n")
    with pytest.raises(Wrong, match=f"has the columns {header}, and this run makes step,epoch,lo"):
        log(path, range(4, 6), after=3)
    assert path.read_text() == f"{header}\n1,1,1\n"


def test_a_summary_of_a_run() -> None:
    tally = Tally(Run(4), SimpleNamespace(count=2))
    assert tally.lines("a.pef") == ["a.pef: no steps"]
    for number, loss in enumerate((4, 3, 2, 1), 1):
        tally.add(step(number, loss))
    first, second = tally.lines("a.pef")
    assert first.startswith("a.pef: 4 steps (2 epochs of 2 batches) in ")
    assert first.endswith(" steps/s after the first")
    assert second == "loss: 4 -> 1.5 (mean of the last 2 steps)"
