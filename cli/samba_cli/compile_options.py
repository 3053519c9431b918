"""The training options of `sambac compile`: how they are spelled, and what they become."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, TypedDict

import click

from .sectioned import SectionOption, adds
from .shell import Wrong

if TYPE_CHECKING:
    from sambac.optimizers import Optimizer

_option = partial(click.option, cls=SectionOption, section="Training")

_OPTIONS = (
    _option("--train", is_flag=True, help="Compile backward sections too, and those below."),
    _option(
        "--loss",
        multiple=True,
        metavar="NAME",
        help="What to minimise: an output, or cross_entropy:LOGITS,LABELS or "
        "mse:PREDICTION,TARGET, whose second name becomes an input. Default: the one scalar "
        "output. May be repeated; losses add up.",
    ),
    _option(
        "--optimizer",
        multiple=True,
        metavar="KIND:lr=1e-3,...",
        help="Compile updates: sgd, adam, adamw, rmsprop, adagrad, lamb or lars, with torch's "
        "settings; params=PATTERN limits it to some parameters. May be repeated.",
    ),
    _option(
        "--freeze",
        multiple=True,
        metavar="PATTERN",
        help="Leave these parameters as they are: 'encoder.*'. May be repeated.",
    ),
    _option(
        "--max-grad-norm",
        type=click.FloatRange(min=0, min_open=True),
        metavar="X",
        help="Clip gradients to this global norm.",
    ),
    _option("--balance", is_flag=True, help="Let several losses count alike in the gradients."),
    _option("--accumulate", is_flag=True, help="Add gradients up over several batches a step."),
    _option(
        "--recompute",
        is_flag=True,
        help="Compute activations again where that saves more memory than it costs time.",
    ),
    _option(
        "--data-parallel",
        is_flag=True,
        help="Let processes that train together reduce their gradients (a REDUCE section).",
    ),
)
training_options = adds(_OPTIONS)
"""Adds the options to a command."""


class TrainingWords(TypedDict):
    """What the command line says of training, as click hands it over."""

    train: bool
    loss: tuple[str, ...]
    optimizer: tuple[str, ...]
    freeze: tuple[str, ...]
    max_grad_norm: float | None
    balance: bool
    accumulate: bool
    recompute: bool
    data_parallel: bool


def refuse_without_train(words: Mapping[str, object]) -> None:
    """Raise `Wrong` for options that say how to train where nothing says to train."""
    names = [name for name in TrainingWords.__annotations__ if name != "train"]
    given = [f"--{name.replace('_', '-')}" for name in names if words[name]]
    if given and not words["train"]:
        raise Wrong(f"{', '.join(given)}: of use only in training; add --train, or leave it out.")


def optimizers(texts: tuple[str, ...]) -> tuple[Optimizer, ...]:
    """Return the optimizers in words like `adamw:lr=1e-3`; raise `Wrong` with all that is wrong."""
    if not texts:
        return ()
    from sambac import CompileError
    from sambac.optimizers import parse_optimizer

    found, problems = [], []
    for text in texts:
        try:
            found.append(parse_optimizer(text))
        except CompileError as error:
            problems.append(f"--optimizer {text}: {error}")
    if problems:
        raise Wrong("\n".join(problems))
    return tuple(found)
