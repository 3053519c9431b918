"""The `sambarun` command: run a PEF.

A run begins here, so nothing is imported before it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn, Unpack

import click
from click.core import ParameterSource

from .completing import graphs, ids, inputs, of_all, of_program, providers, types
from .number_types import THREADS, FiniteRange, WholeNumberRange
from .sectioned import single_option
from .shell import FILE, Wrong, leave_at_once, run, talk_options, version_option
from .train_options import RunCommand, training_options, wants_data

if TYPE_CHECKING:
    from .running import Words

# What --list looks at; how much is printed is nothing to it.
_OF_A_LIST = ("file", "list_only", "provider", "verbose", "quiet")

_HELP = """Run the sections of a PEF.

\b
Examples:
  sambarun net.pef --list                 inputs, outputs, sections
  sambarun net.pef --input '*=random'     run it and summarise the results
  sambarun net.pef --input x=@x.npy --output y.npz
  sambarun net.pef --inputs all.npz --expect y=@y.npy
  sambarun net.pef --input x=ones --iterations 100
  sambarun net.pef --input '*=random' --profile trace.json
  sambarun net.pef --section-ids 3 --input '*=random'
  sambarun net.pef --provider NAME --list  which sections it runs
  sambarun net.pef --sections FWD,BCKWD --inputs batch.npz --output grads.npz
  sambarun net.pef --sections OPT --inputs grads.npz --save net.safetensors
  sambarun net.pef --steps 1000 --data train.npz --shuffle 0 --save net.safetensors
  sambarun net.pef --load net.safetensors --eval --data test.npz

A data file holds an array with N rows for each input. A step takes as many rows as the program was
compiled for; rows left over at the end of an epoch are not used in it. With --load, training goes
on where the checkpoint was saved. A loss that is NaN or infinite ends the run.

Random inputs are the same in every run (seed 0): floating-point numbers from the normal
distribution, 0 or 1 for all other types. Sizes that the program leaves open are taken as 1, or
as in --input x=random:8x128. The items of a sequence s are called s.0, s.1 and so on, as inputs
and as results.

\b
Exit codes:
  0    done
  1    a result differs from what --expect says
  2    usage error, bad input, corrupt file, full disk
  3    an internal error
  130  interrupted (143: by SIGTERM)
"""


_TOLERANCE = FiniteRange(min=0)


@click.command(cls=RunCommand, help=_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", type=FILE)
@single_option("--list", "list_only", is_flag=True, help="Show inputs, outputs and sections.")
@single_option(
    "--graph",
    metavar="NAME",
    help="Run this graph, not the first one (see --list).",
    shell_complete=of_program(graphs),
)
@single_option(
    "--sections",
    metavar="TYPES",
    help="Run only sections of these types: FWD,...",
    shell_complete=of_program(types, several=True),
)
@single_option(
    "--train",
    is_flag=True,
    help="Run FWD as part of a training step; --output then has what the other parts need.",
)
@single_option(
    "--section-ids",
    metavar="IDS",
    help="Run only these sections: 0,2,5..9",
    shell_complete=of_program(ids, several=True),
)
@single_option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=@x.npy|random|ones",
    help="An input; '*' stands for all others. May be repeated.",
    shell_complete=of_program(inputs),
)
@single_option("--inputs", "inputs_file", type=FILE, metavar="ALL.npz", help="Inputs by name.")
@single_option(
    "--output",
    type=FILE,
    metavar="OUT.npz",
    help="Where the results go, instead of a summary: .npz, .npy for a single one, .safetensors.",
)
@single_option(
    "--expect", multiple=True, metavar="NAME=@y.npy", help="Compare a result. May be repeated."
)
@single_option(
    "--rtol",
    type=_TOLERANCE,
    metavar="X",
    default=1e-3,
    show_default=True,
    help="Relative tolerance of --expect.",
)
@single_option(
    "--atol",
    type=_TOLERANCE,
    metavar="X",
    default=1e-5,
    show_default=True,
    help="Absolute tolerance of --expect.",
)
@single_option(
    "--iterations",
    type=WholeNumberRange(min=1),
    metavar="N",
    help="Run N times after a warm-up; report latency and throughput.",
)
@single_option(
    "--threads",
    type=THREADS,
    metavar="N",
    help="How many threads to use. Default: one per core.",
)
@single_option(
    "--provider",
    metavar="NAME[@LIBRARY][:KEY=VALUE,...]",
    help="Run on another execution provider of the installed onnxruntime, or of a plugin library "
    "(a path, whose code is loaded), with these options; "
    "sections for which it lacks a kernel stay on the processor (see --list).",
    shell_complete=of_all(providers),
)
@single_option(
    "--profile",
    type=FILE,
    metavar="TRACE.json",
    help="Write a Chrome trace with a span for each section (they run one by one).",
)
@training_options
@version_option("sambarun")
@talk_options
def cli(**words: Unpack[Words]) -> int:
    """List or run the program, as the words say."""
    if words["list_only"]:
        _require_listing()
        from .listing import list_program

        return list_program(words["file"], words["provider"])
    if not words["expect"] and (given := _given(("rtol", "atol"))):
        raise Wrong(f"{', '.join(given)}: of use only with --expect NAME=@FILE.npy.")
    if wants_data(words):
        from .training import run_training

        return run_training(words)
    from .running import run_program

    return run_program(words)


def _require_listing() -> None:
    """Raise `Wrong` for options that a list does nothing with."""
    names = (str(parameter.name) for parameter in click.get_current_context().command.params)
    if given := _given(name for name in names if name not in _OF_A_LIST):
        raise Wrong(f"{', '.join(given)}: --list runs nothing; leave one of them out.")


def _given(names: Iterable[str]) -> list[str]:
    """Return the options with these names that the command line has, as they are spelled."""
    context = click.get_current_context()
    spelled = {str(each.name): each.opts[0] for each in context.command.params}
    on_line = ParameterSource.COMMANDLINE
    return [spelled[name] for name in names if context.get_parameter_source(name) is on_line]


def _user_errors() -> tuple[type[Exception], ...]:
    from pef import PefError
    from sambarun import RunError

    return (PefError, RunError)


def main() -> NoReturn:
    """Run `sambarun` on the arguments of this process."""
    run(cli, "sambarun", _user_errors, leave_at_once)
