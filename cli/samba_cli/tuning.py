"""`sambac tune`: measurements of formulations, as a table and as a tuning file."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from .compile_options import options_from
from .compiling import data_files, files_read, model_file, named, progress
from .shell import DONE, echo
from .targets import check_kind, check_targets

if TYPE_CHECKING:
    from sambac.tuning_file import HostTuning, Measured

OPTIONS = (
    *("inputs", "precision", "train", "loss", "optimizers", "freeze", "max_grad_norm"),
    *("accumulate", "balance", "recompute", "data_parallel", "number_rules"),
    *("weight_block", "calibrate", "observer", "max_error", "expect"),
)
"""The options of a compilation that change which operators there are."""

HELP = """Measure on this host which formulations of MODEL's operators are fastest.

Where an operator can be written in several ways, a compilation takes the one that a cost model
expects to be fastest on any processor. This command times them for the sizes that MODEL has, the
most expensive ones first, and writes what it found to a file for `sambac compile --tuning FILE`.
Give the options that the model will be compiled with. docs/tuning.md describes the file.

\b
Examples:
  sambac tune net.py:model --train --optimizer adamw:lr=1e-3 -o host.toml
  sambac compile net.py:model --train --optimizer adamw:lr=1e-3 --tuning host.toml
  sambac tune net.onnx --train --threads 1 --seconds 20
"""


def tune_to_file(
    model: str,
    output: Path | None,
    words: Mapping[str, object],
    threads: int | None,
    seconds: float | None,
) -> int:
    """Measure the formulations of a model, write the file and print what was found."""
    source = model_file(model)
    options = options_from(words)
    target = output or Path(f"{source.stem}.tuning.toml")
    check_targets((target,), (source, *files_read(words), *data_files(source, target)))
    check_kind(target, ".toml")
    import sambac

    begin = time.perf_counter()
    with progress(source.name) as show, named(source):
        found = sambac.tune(model, options, show, threads=threads, seconds=seconds)
    found.save(target)
    echo("\n".join(lines(found, target, time.perf_counter() - begin)))
    return DONE


def lines(found: HostTuning, target: Path, seconds: float) -> Iterator[str]:
    """Yield what was measured, the hottest choices first, and a line about all of it."""
    from pef.text import plural

    for each in found.choices:
        yield f"{each.question.operator}: {each.question.sizes} ({each.count}x)"
        yield from _times(each)
    faster = sum(each.chosen != each.guess for each in found.choices)
    measured = plural(len(found.choices), "choice")
    yield f"{target}: {measured} measured in {seconds:.0f} s, {faster} other than guessed"
    if found.choices:
        yield f"What was measured takes {_whole(found):.2f} of the time that the guesses take."
    elif not found.left:
        yield (
            "Nothing to choose: a training step (--train) has choices in convolutions, in LSTMs "
            "and GRUs that keep their gates, and in large products."
        )
    if found.left:
        yield f"{plural(found.left, 'choice')} left, as the time was over; see --seconds."


def _times(each: Measured) -> Iterator[str]:
    """Yield a line for each formulation, the fastest first."""
    from pef.text import human_time

    wide = max(map(len, each.times))
    for name in sorted(each.times, key=lambda name: each.times[name]):
        mark = "*" if name == each.chosen else " "
        note = f"{each.gain:.2f} of the guess" if name == each.chosen != each.guess else ""
        said = "guess" if name == each.guess else note
        yield f"  {human_time(each.times[name]):>8}  {mark} {name:<{wide}}  {said}".rstrip()


def _whole(found: HostTuning) -> float:
    """Return the time of all that was measured, as chosen, over that as guessed."""
    guessed = [each.count * each.times.get(each.guess, 0.0) for each in found.choices]
    gains = [each.gain for each in found.choices]
    return sum(map(float.__mul__, guessed, gains)) / (sum(guessed) or 1.0)
