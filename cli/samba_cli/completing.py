"""What shells complete that no option knows by itself: names in the PEF that is on the line.

A shell asks while a line is typed, and shows no errors: of a file that is no PEF, or not there yet,
there is nothing to answer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

    import pef

Answers: TypeAlias = (
    "Callable[[click.Context, click.Parameter, str], list[str] | list[CompletionItem]]"
)
Names: TypeAlias = "Callable[[pef.Program], Iterable[str]]"


def of_program(names: Names, *, several: bool = False) -> Answers:
    """Return what answers a shell with the `names` in the PEF of the line that fit what is typed.

    `several` may stand behind each other, with commas between them.
    """

    def answer(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
        del parameter
        # Of a line that ends in an option without its value click takes no arguments apart.
        path = context.params.get("file") or next(iter(context.args), None)
        found = () if path is None else _read(os.fspath(path), names)
        return _fitting(found, typed, several=several)

    return answer


def of_all(names: Callable[[], Iterable[str]], *, several: bool = False) -> Answers:
    """Return what answers a shell with those of `names` that fit what is typed."""
    return lambda _context, _parameter, typed: _fitting(names(), typed, several=several)


def or_file(names: Callable[[], Iterable[str]]) -> Answers:
    """Return what answers a shell with those of `names` that fit what is typed, else with files."""

    def answer(
        context: click.Context, parameter: click.Parameter, typed: str
    ) -> list[CompletionItem]:
        del context, parameter
        from click.shell_completion import CompletionItem  # a run does not wait for it

        found = _fitting(names(), typed, several=False)
        return [*map(CompletionItem, found)] or [CompletionItem(typed, type="file")]

    return answer


def _read(path: str, names: Names) -> list[str]:
    """Return the `names` in a PEF, none of what is no PEF."""
    import pef  # a run without questions of a shell does not wait for it

    try:
        with pef.open(os.path.expanduser(path)) as file:
            return [*names(file.program)]
    except pef.PefError:
        return []


def _fitting(names: Iterable[str], typed: str, *, several: bool) -> list[str]:
    before, comma, begun = typed.rpartition(",") if several else ("", "", typed)
    wanted = begun.casefold()
    return [f"{before}{comma}{name}" for name in names if name.casefold().startswith(wanted)]


def types(program: pef.Program) -> Iterable[str]:
    """Return the types of sections."""
    return dict.fromkeys(section.type.name for section in program.sections)


def ids(program: pef.Program) -> Iterable[str]:
    """Return the positions of sections."""
    return map(str, range(len(program.sections)))


def sections(program: pef.Program) -> Iterable[str]:
    """Return the names of sections, and their types."""
    return [*types(program), *(section.name for section in program.sections)]


def graphs(program: pef.Program) -> Iterable[str]:
    """Return the names of graphs, and of the models that they are of."""
    called = [graph.name for graph in program.graphs]
    return dict.fromkeys([*called, *(graph.model for graph in program.graphs if graph.model)])


def explained(program: pef.Program) -> Iterable[str]:
    """Return the names of sections, symbols and graphs."""
    called = [section.name for section in program.sections]
    symbols = (symbol.name for symbol in program.symbols)
    return dict.fromkeys([*called, *symbols, *(graph.name for graph in program.graphs)])


def inputs(program: pef.Program) -> Iterator[str]:
    """Yield words that give inputs values."""
    named = dict.fromkeys(port.name for graph in program.graphs for port in graph.inputs)
    for name in ("*", *named):
        yield from (f"{name}=random", f"{name}=ones")


def hyperparams(program: pef.Program) -> Iterator[str]:
    """Yield words that set hyperparameters to what they were compiled with."""
    for argin in program.argins:
        yield f"{argin.name}={argin.default:g}"


def providers() -> list[str]:
    """Return the execution providers of the installed onnxruntime."""
    import onnxruntime

    return list(onnxruntime.get_available_providers())


def archs() -> Iterable[str]:
    """Return the names of the built-in devices, none where the compiler is not installed."""
    return _of_compiler("sambac.arch", lambda module: module.builtin_archs())


def optimizers() -> Iterable[str]:
    """Return the kinds of optimizers, as `archs` does."""
    return _of_compiler("sambac.optimizers", lambda module: module.OPTIMIZERS)


def passes() -> Iterable[str]:
    """Return the names of passes, as `archs` does."""
    return _of_compiler("sambac.opt", lambda module: module.pass_names())


def _of_compiler(module: str, names: Callable[[Any], Iterable[str]]) -> Iterable[str]:
    from .shell import Wrong, needs_compiler

    try:
        with needs_compiler():
            return names(import_module(module))
    except Wrong:
        return ()
