"""The `sambac` command: compile a model, and look into what came out."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click

from .compile_options import CompileCommand, options_from
from .compiling import compile_to_file, model_file
from .completing import archs, explained, graphs, ids, of_all, of_program, passes, sections
from .number_types import SECONDS, THREADS, WholeNumber, WholeNumberRange
from .sectioned import single_option
from .shell import (
    DIFFERS,
    DONE,
    FILE,
    Wrong,
    echo,
    is_terminal,
    needs_compiler,
    run,
    talk_options,
    version_option,
)
from .targets import check_kind, check_target
from .tuning import HELP, OPTIONS, tune_to_file

_PEF = click.Path(path_type=Path, readable=False)
_naming_one = partial(single_option, shell_complete=of_program(ids))
_naming_graph = partial(single_option, shell_complete=of_program(graphs))
_naming_some = partial(single_option, shell_complete=of_program(sections, several=True))

_HELP = """Compile models into PEF executables, and inspect them.

\b
Examples:
  sambac compile net.onnx -o net.pef       make an executable, and its log
  sambac compile net.onnx --input x=1x128  fix sizes that the model leaves open
  sambac compile net.py:model --train --optimizer adamw:lr=1e-3
  sambac tune net.py:model --train         which formulations run fastest on this host?
  sambac inspect net.pef                   sections, memory plan, symbols
  sambac inspect net.pef --html net.html   the same with pictures, for a browser
  sambac inspect net.pef --json            the same as JSON, for other programs
  sambac explain net.pef section_3         why is it cut there, what limits it?
  sambac scale net.pef --link-bandwidth 25GB/s --link-latency 3us
  sambac opt net.onnx --diff               what does each pass change?
  sambac arch sn40l > mine.toml            a device description to start from
  sambac verify net.pef                    is every byte as it was written?
  sambac diff old.pef new.pef              what has changed?
  sambac extract net.pef --section 0 -o s.onnx
  sambarun net.pef --input '*=random'      run it

\b
Exit codes:
  0    done
  1    a comparison (diff) found differences
  2    usage error, bad input, corrupt file, full disk
  3    an internal error
  130  interrupted (143: by SIGTERM)
"""

_COMPILE_HELP = """Compile MODEL into a PEF.

MODEL is an ONNX file, an exported PyTorch program (.pt2), or FILE.py:NAME, a function without
arguments that returns a torch module and a tuple of example inputs. FILE.py is code and is run;
the other kinds are data, and nothing in them is run.

A log is written beside the PEF: what was compiled with which options, tables of sections, memory
and symbols, and warnings.

\b
Examples:
  sambac compile net.onnx                      makes net.pef and net.pef.log
  sambac compile bert.onnx -o out/bert.pef -O1
  sambac compile net.onnx --input x=8x3x32x32  fix a batch size left open
  sambac compile net.onnx --arch sn10 --io-host-memory
  sambac compile net.py:model --train --optimizer adamw:lr=1e-3
  sambac compile net.onnx --train --loss cross_entropy:logits,y --optimizer sgd:lr=0.1
"""

_INSPECT_HELP = """Show sections, schedule, memory plan and symbols of a PEF.

On a terminal this prints tables as wide as the terminal, a page at a time; into a file or a pipe,
the text of the log that was written at compile time. --json prints the same, one row per line.

\b
Examples:
  sambac inspect net.pef                        all of it
  sambac inspect net.pef --top 10               what takes most of the time
  sambac inspect net.pef --sections 'fwd_*'     these, with their operators
  sambac inspect net.pef --symbols --sections 3 what section 3 reads and writes
  sambac inspect net.pef --html net.html        the same for a browser, with pictures
  sambac inspect new.pef --html both.html --against old.pef
"""

_OPT_HELP = """Run passes over MODEL without compiling it, and show what each one did.

MODEL is what `sambac compile` takes. Without --passes, all passes of a compilation for inference
run. A name is that of a pass or of a stage: legalize, simplify, select_kernels,
select_training_kernels, before_gradients, after_gradients. Passes rely on the legal form, so
legalize runs first unless it, or one of its passes, is named.

\b
Examples:
  sambac opt net.onnx                                    a table of all passes
  sambac opt net.onnx --passes fold_constants,eliminate_dead_code --diff
  sambac opt net.onnx --passes legalize --diff           from the file to the legal form
"""


_EXPLAIN_HELP = """Say why a PEF is planned as it is, and what limits it.

Without NAME: what the modelled time is made of, the slowest sections, what would help most, what
takes memory. NAME is a section (or its number), an operator, a symbol or a graph, as `sambac
inspect` shows them: why the operator is in that section, why the section ends where it does, why
the symbol lies where it does. If one name means several things, put section:, operator:, symbol:
or graph: in front of it.

All numbers come from the plan, or from the same planners and estimates run again with one thing
changed; nothing is measured. docs/explain.md says how to read them.

\b
Examples:
  sambac explain net.pef
  sambac explain net.pef section_3
  sambac explain net.pef layer.0.weight
  sambac explain net.pef --json
"""


_SCALE_HELP = """Model how long a training step takes on several replicas.

FILE has to be compiled with --train --data-parallel. Sections take the times that the file
estimates, in the order of its schedule; a gradient occupies the link for latency + 2 (n - 1) / n *
bytes / bandwidth, in a ring of n replicas. Each replica has its own batch. The modes are those of
training: normal reduces after the backward pass, inorder while it runs, and optimal also lets
updates overtake whose gradients have arrived. The speed of the link is given by the options below,
or by the device's file.

\b
Examples:
  sambac scale net.pef --link-bandwidth 25GB/s --link-latency 3us
  sambac scale net.pef --link-bandwidth 100Gbit/s --link-latency 10us \\
      --replicas 1,8,64 --plot scaling.svg
"""


class _InOrder(click.Group):
    """A group whose verbs are listed in the order they are defined in."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the verbs."""
        del ctx
        return list(self.commands)


@click.group(
    cls=_InOrder,
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@version_option("sambac")
def cli() -> None:
    """Hold the verbs; what each does stands at the verb."""


@cli.command("compile", cls=CompileCommand, help=_COMPILE_HELP)
@click.argument("model", type=FILE)
@single_option("-o", "--output", type=_PEF, help="The PEF to write; default: MODEL.pef, here.")
@single_option("--timing", is_flag=True, help="Print how long each stage took.")
@talk_options
def compile_command(model: str, output: Path | None, timing: bool, **words: object) -> int:
    """Turn what the command line says into a PEF and its log."""
    with needs_compiler():
        return compile_to_file(model, output, words, timing=timing)


@cli.command(cls=CompileCommand, wanted=OPTIONS, help=HELP)
@click.argument("model", type=FILE)
@single_option("-o", "--output", type=_PEF, help="The file to write; default: MODEL.tuning.toml.")
@single_option("--threads", type=THREADS, metavar="N", help="Default: one per core.")
@single_option("--seconds", type=SECONDS, metavar="S", help="How long to measure. Default: 60.")
@talk_options
def tune(
    model: str, output: Path | None, threads: int | None, seconds: float | None, **words: object
) -> int:
    """Measure formulations on this host."""
    with needs_compiler():
        return tune_to_file(model, output, words, threads, seconds)


@cli.command(help=_INSPECT_HELP)
@click.argument("file", type=_PEF)
@_naming_some("--sections", metavar="PATTERN", help="Only these sections: 3,7..9 or FWD or enc*.")
@single_option(
    "--top",
    type=WholeNumberRange(min=1),
    metavar="N",
    help="Only the N slowest sections; with --symbols, the N largest symbols.",
)
@single_option("--symbols", is_flag=True, help="Only symbols; those of --sections if it is given.")
@single_option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@single_option("--html", type=_PEF, metavar="OUT", help="Write a page for a browser.")
@single_option("--against", type=_PEF, metavar="FILE", help="Compare with another PEF on the page.")
@single_option("--no-pager", is_flag=True, help="Print everything at once, however long it is.")
@talk_options
def inspect(
    file: Path,
    as_json: bool,
    html: Path | None,
    against: Path | None,
    no_pager: bool,
    **view: Any,
) -> int:
    """Show what is asked for of a PEF."""
    from .inspecting import json_lines, read_report, write_page
    from .narrowing import View, rows, shown

    asked = View(**view)
    if html is not None:
        if as_json or not asked.whole:
            raise Wrong(
                "--html writes all of a PEF; leave out --json, --sections, --top, --symbols."
            )
        echo(write_page(file, html, against))
        return DONE
    if against is not None:
        raise Wrong("--against compares on a page: add --html OUT, or use sambac diff A B.")
    report = read_report(file)
    if as_json:
        echo("\n".join(json_lines(rows(report, asked))))
        return DONE
    if is_terminal(sys.stdout):
        from .terminal import drawn, say

        say(drawn(report if asked.whole else None, shown(report, asked)), paged=not no_pager)
        return DONE
    from pef.report import render, render_parts

    lines = render(report) if asked.whole else render_parts(shown(report, asked))
    echo("\n".join(lines))
    return DONE


@cli.command()
@click.argument("file", type=_PEF)
@talk_options
def verify(file: Path) -> int:
    """Check every byte, every reference and every plan of a PEF.

    Checks structure, hashes of metadata and content, padding, references, schedule, lifetimes and
    addresses; then, from the operators in the sections, whether fusion groups, sections and the
    memory plan are right. All problems are listed, and the exit code is 2 if there are any.
    """
    from .inspecting import verify_lines

    echo("\n".join(verify_lines(file)))
    return DONE


@cli.command()
@click.argument("a", type=_PEF)
@click.argument("b", type=_PEF)
@single_option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@talk_options
def diff(a: Path, b: Path, as_json: bool) -> int:
    """Show how two PEFs differ.

    Compares options, signature, sections, programs, symbols, weights and the memory plan. The
    exit code is 1 if anything differs, else 0.
    """
    from .inspecting import diff_lines

    differs, lines = diff_lines(a, b, as_json)
    echo("\n".join(lines))
    return DIFFERS if differs else DONE


@cli.command()
@click.argument("file", type=_PEF)
@_naming_one("--section", type=WholeNumber(), required=True, metavar="ID", help="Which section.")
@single_option("-o", "--output", type=_PEF, required=True, help="The ONNX file to write.")
@talk_options
def extract(file: Path, section: int, output: Path) -> int:
    """Write one section as an ONNX model, weights included.

    Tensors are named after their symbols and nodes after their operators, so the model has the
    inputs, nodes and outputs that `sambac inspect` shows for the section.
    """
    check_target(output, file)
    check_kind(output, ".onnx")
    with needs_compiler():
        from sambac.reconstruct.extract import extract_section
    echo("\n".join(map(str, extract_section(file, section, output))))
    return DONE


@cli.command(help=_EXPLAIN_HELP)
@click.argument("file", type=_PEF)
@click.argument("name", required=False, shell_complete=of_program(explained))
@single_option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@talk_options
def explain(file: Path, name: str | None, as_json: bool) -> int:
    """Say why a PEF is planned as it is."""
    with needs_compiler():
        from .explaining import explained_lines
    click.echo("\n".join(explained_lines(file, name, as_json)))
    return DONE


@cli.command(help=_SCALE_HELP)
@click.argument("file", type=_PEF)
@single_option("--replicas", metavar="N,N,...", help="How many. Default: 1,2,4,8,16,32,64.")
@single_option("--link-bandwidth", metavar="25GB/s", help="Bandwidth between replicas.")
@single_option("--link-latency", metavar="3us", help="Latency of one reduction.")
@_naming_graph("--graph", metavar="NAME", help="Which training step, if there are several.")
@single_option("--plot", "picture", type=_PEF, metavar="FILE.svg", help="Also draw a plot.")
@single_option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@talk_options
def scale(
    file: Path,
    replicas: str | None,
    link_bandwidth: str | None,
    link_latency: str | None,
    graph: str | None,
    picture: Path | None,
    as_json: bool,
) -> int:
    """Model steps of replicas that train together."""
    with needs_compiler():
        from .scaling import replica_counts, scaled_lines
    link = (link_bandwidth, link_latency)
    counts = replica_counts(replicas)
    lines = scaled_lines(file, counts, graph, link, picture=picture, as_json=as_json)
    echo("\n".join(lines))
    return DONE


@cli.command(cls=CompileCommand, wanted=["inputs"], help=_OPT_HELP)
@click.argument("model", type=FILE)
@single_option(
    "--passes",
    metavar="NAME,...",
    shell_complete=of_all(passes, several=True),
    help="Which passes, in this order. Default: all.",
)
@single_option("--diff", "as_diff", is_flag=True, help="Show what each pass changed in the graph.")
@talk_options
def opt(model: str, passes: str | None, as_diff: bool, **words: object) -> int:
    """Run passes over a model without compiling it."""
    from .opting import diff_lines, run_lines

    model_file(model)
    with needs_compiler():
        from sambac.opt import INFERENCE, run_alone

        options = options_from(words)
        names = INFERENCE if passes is None else [name.strip() for name in passes.split(",")]
        runs = run_alone(model, options, names)
    lines = diff_lines(runs, is_terminal(sys.stdout)) if as_diff else run_lines(runs)
    click.echo("\n".join(lines))
    return DONE


@cli.command()
@click.argument("name", required=False, shell_complete=of_all(archs))
@talk_options
def arch(name: str | None) -> int:
    """Print the description of the device NAME, or list the built-in ones.

    NAME is a built-in device or a TOML file, which is checked. Change numbers in a copy of what is
    printed to make a device for --arch FILE. Every number says where it comes from: specified by a
    publication, calibrated by a fit to measurements, or assumed. Numbers that are not known are
    left out, and listed at the end.
    """
    with needs_compiler():
        from sambac.arch import arch_text, builtin_archs, load_arch
    if name is not None:
        click.echo(arch_text(name), nl=False)
        return DONE
    for each in builtin_archs():
        echo(f"{each:<8}{load_arch(each).title}")
    return DONE


def _user_errors() -> tuple[type[Exception], ...]:
    from pef import PefError

    # An error of the compiler can only come from a compiler that was imported.
    errors = sys.modules.get("sambac.errors")
    return (PefError, errors.CompileError) if errors else (PefError,)


def main() -> NoReturn:
    """Run `sambac` on the arguments of this process."""
    run(cli, "sambac", _user_errors)
