"""Options of other tools: what stands for each of them here."""

from __future__ import annotations

from collections.abc import Mapping

import click

_CHECKPOINT = "--load FILE.safetensors goes on from a checkpoint"
_RATE = "--hyperparam lr=NUMBER sets the learning rate"

OF_RUNS: Mapping[str, str] = {
    **dict.fromkeys(
        ("--resume", "--resume-from-checkpoint", "--checkpoint", "--ckpt", "--restore"),
        _CHECKPOINT,
    ),
    **dict.fromkeys(("--lr", "--learning-rate"), _RATE),
    "--weight-decay": "--hyperparam weight_decay=NUMBER sets it, where the program has it",
    "--seed": "--shuffle SEED shuffles, --init random:SEED makes up weights",
    "--device": "--provider NAME chooses an execution provider",
    "--batch-size": "the program has the batch that it was compiled for: sambac compile --input",
    "--benchmark": "--iterations N measures",
}
"""What there is in `sambarun`."""

OF_COMPILATIONS: Mapping[str, str] = {
    "--batch-size": "--input NAME=8x3x32x32 fixes the sizes of an input, its batch too",
    **dict.fromkeys(("--fp16", "--bf16", "--int8", "--dtype", "--quantize"), "see --precision"),
    **dict.fromkeys(("--device", "--target"), "--arch NAME|FILE chooses the device"),
    **dict.fromkeys(
        ("--lr", "--learning-rate"), "--optimizer KIND:lr=NUMBER sets the learning rate"
    ),
    "--weight-decay": "--optimizer KIND:weight_decay=NUMBER sets it",
}
"""What there is in the commands of `sambac` that compile."""


def explained(
    error: click.NoSuchOption, words: Mapping[str, str], known: set[str]
) -> click.NoSuchOption:
    """Return the error that also says what stands for the option here.

    `known` are the spellings that the command has: of others nothing is said.
    """
    said = words.get(error.option_name)
    named = [word for word in (said or "").split() if word.startswith("--")]
    if said is None or not known.issuperset(named):
        return error
    return click.NoSuchOption(
        error.option_name, f"No such option {error.option_name!r}; {said}.", ctx=error.ctx
    )
