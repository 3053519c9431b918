"""The training options of `sambarun`: how they are spelled, and which go together.

A run begins here, so nothing is imported before it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TypedDict

import click

from .completing import hyperparams, of_program
from .number_types import WholeNumberRange
from .other_words import OF_RUNS
from .sectioned import SectionedCommand, SectionOption, adds
from .shell import FILE, Wrong

_state = partial(click.option, cls=SectionOption, section="State")
_training = partial(click.option, cls=SectionOption, section="Training")
_COUNT = WholeNumberRange(min=1)
_SEED = WholeNumberRange(min=0, max=(1 << 63) - 1)

_OPTIONS = (
    _state(
        "--load",
        type=FILE,
        metavar="FILE.safetensors",
        help="Start from the state in a checkpoint.",
    ),
    _state("--init", metavar="random:SEED", help="Draw the weights that the PEF does not hold."),
    _state(
        "--hyperparam",
        "hyperparams",
        multiple=True,
        metavar="NAME=NUMBER",
        help="Set lr, adamw.weight_decay, seed, ... (see --list). May be repeated.",
        shell_complete=of_program(hyperparams),
    ),
    _training("--steps", type=_COUNT, metavar="N", help="Train for N steps on --data."),
    _training("--epochs", type=_COUNT, metavar="E", help="Train E times over all of --data."),
    _training(
        "--data",
        type=FILE,
        metavar="FILE.npz",
        help="An array for each input, with a row for each example; --eval reads the --data "
        "after it.",
    ),
    _training("--shuffle", type=_SEED, metavar="SEED", help="Shuffle rows anew for each epoch."),
    _training(
        "--accumulate",
        type=_COUNT,
        metavar="K",
        help="Accumulate K batches per step (needs a PEF compiled with --accumulate).",
    ),
    _training(
        "--log-csv",
        type=FILE,
        metavar="FILE.csv",
        help="Write step, epoch and losses, a row per step.",
    ),
    _training(
        "--save",
        type=FILE,
        metavar="FILE.safetensors",
        help="Save the state after each epoch, at the end and when interrupted; without --steps, "
        "after the run.",
    ),
    _training(
        "--save-every", type=_COUNT, metavar="N", help="Save after every N steps, not each epoch."
    ),
    _training(
        "--eval",
        "evaluate",
        is_flag=True,
        help="Evaluate on the --data after it, after training if there is any.",
    ),
    _training("--eval-data", type=FILE, hidden=True),
)
training_options = adds(_OPTIONS)
"""Adds the options to a command."""
_ONLY_TRAINING = ("shuffle", "accumulate", "log_csv", "save_every")
_NOT_WITH_DATA = (
    "sections",
    "section_ids",
    "train",
    "inputs",
    "inputs_file",
    "expect",
    "iterations",
    "profile",
)
_SPELLED = {
    "inputs": "--input",
    "inputs_file": "--inputs",
    "evaluate": "--eval",
    "hyperparams": "--hyperparam",
}


class TrainWords(TypedDict):
    """What the command line says of training, as click hands it over."""

    load: str | None
    init: str | None
    hyperparams: tuple[str, ...]
    steps: int | None
    epochs: int | None
    data: str | None
    shuffle: int | None
    accumulate: int | None
    log_csv: str | None
    save: str | None
    save_every: int | None
    evaluate: bool
    eval_data: str | None


class RunCommand(SectionedCommand):
    """`sambarun`, where `--data` after `--eval` is another option than before it."""

    elsewhere = OF_RUNS

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse `args` after giving each `--data` its own name."""
        return super().parse_args(ctx, tell_data_apart(args))


def tell_data_apart(words: Sequence[str]) -> list[str]:
    """Return `words` with the first `--data` after `--eval` called `--eval-data`."""
    found = list(words)
    if "--eval" in found:
        for place in range(found.index("--eval") + 1, len(found)):
            option, equals, value = found[place].partition("=")
            if option == "--data":
                found[place] = f"--eval-data{equals}{value}"
                break
    return found


def trains(words: Mapping[str, object]) -> bool:
    """Tell whether the command line asks for training."""
    return words["steps"] is not None or words["epochs"] is not None


def wants_data(words: Mapping[str, object]) -> bool:
    """Tell whether a data set is to be trained or evaluated on; raise `Wrong` for odd mixtures."""
    training, evaluate = trains(words), bool(words["evaluate"])
    if not training:
        _refuse(words, _ONLY_TRAINING, "of use only in training; add --steps N --data FILE.npz")
    if not (training or evaluate):
        _refuse(words, ("data",), "of use only with --steps, --epochs or --eval")
        return False
    if words["steps"] and words["epochs"]:
        raise Wrong("--steps, --epochs: give one of them; steps are counted over all epochs.")
    _refuse(words, _NOT_WITH_DATA, "not for runs over --data; leave out one or the other")
    if not training:
        _refuse(words, ("save",), "for what changes the state; --eval does not")
        _refuse(words, ("hyperparams",), "for what trains; --eval reads none")
        if words["data"] and words["eval_data"]:
            both = f"{words['data']} and {words['eval_data']}"
            raise Wrong(f"--eval: evaluates on one data set, and {both} are given; leave one out.")
    if not evaluate:
        _refuse(words, ("output",), "for what --eval gives; add --eval --data TEST.npz")
    if words["save_every"] and not words["save"]:
        raise Wrong("--save-every: say where with --save FILE.safetensors.")
    if training and not words["data"]:
        asked = "--epochs" if words["epochs"] else "--steps"
        raise Wrong(f"{asked}: give the data to train on: --data FILE.npz.")
    if evaluate and not words["eval_data"] and (training or not words["data"]):
        raise Wrong("--eval: give the data to evaluate on after it: --eval --data TEST.npz.")
    return True


def _refuse(words: Mapping[str, object], names: Iterable[str], why: str) -> None:
    given = [_spelled(name) for name in names if _is_given(words[name])]
    if given:
        raise Wrong(f"{', '.join(given)}: {why}.")


def _is_given(value: object) -> bool:
    """Tell whether there was such an option; its number may be 0."""
    return value is not None and value is not False and value != ()


def _spelled(name: str) -> str:
    return _SPELLED.get(name, f"--{name.replace('_', '-')}")
