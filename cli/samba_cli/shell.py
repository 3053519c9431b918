"""Where a command meets the shell: exit codes, errors as sentences, quiet ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    redirect_stderr,
    redirect_stdout,
    suppress,
)
from dataclasses import dataclass, field
from shutil import get_terminal_size
from types import FrameType
from typing import NoReturn, TextIO, TypeVar

import click

from pef.text import WIDTH, visible

from .interrupts import INTERRUPTED, interrupt_behind

DONE = 0
DIFFERS = 1
WRONG = 2
INTERNAL = 3
TERMINATED = 143
_WIDEST = 110  # longer lines are hard to read

FILE = click.Path(readable=False)
"""The type of words that are names of files, which shells complete; all checks come later."""
_Function = TypeVar("_Function", bound=Callable[..., object])
_Value = TypeVar("_Value")
UserErrors = Callable[[], tuple[type[Exception], ...]]


class Terminated(KeyboardInterrupt):
    """SIGTERM came, which batch systems send before they kill: it ends a command as Ctrl-C does."""


class Wrong(click.ClickException):
    """What the user asked for cannot be done; the message says what to change."""

    exit_code = WRONG


@dataclass
class Settings:
    """What holds for a whole invocation.

    `verbose` shows tracebacks and stages; closing `until_the_end` ends what lasts as long.
    """

    verbose: bool = False
    until_the_end: ExitStack = field(default_factory=ExitStack)


def _set_verbose(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Settings).verbose = True


def _set_quiet(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    # Not a resource of the context: nothing closes that of words that could not be parsed.
    if value:
        context.ensure_object(Settings).until_the_end.enter_context(_silence())


@contextmanager
def _silence() -> Iterator[None]:
    """Print nothing in the block; errors are printed behind it."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


_quiet_option = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    expose_value=False,
    callback=_set_quiet,
    help="Print nothing but errors; the exit code says the rest.",
)
_verbose_option = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_set_verbose,
    help="Say more; show the traceback of an error.",
)


def echo(text: str, err: bool = False) -> None:
    """Print lines without colours, whatever is in them."""
    click.echo(visible(text), err=err)


def one_each(option: str, pairs: Iterable[tuple[str, _Value]]) -> dict[str, _Value]:
    """Return what the words of `option` say of each name.

    Raises `Wrong` for a name of which they say two things.
    """
    found: dict[str, _Value] = {}
    for name, value in pairs:
        if found.setdefault(name, value) != value:
            said = f"'{name}' is given twice, as {found[name]} and as {value}; give it once."
            raise Wrong(f"{option}: {said}")
    return found


def talk_options(function: _Function) -> _Function:
    """Add the options that say how much a command prints."""
    return _verbose_option(_quiet_option(function))


def version_option(tool: str) -> Callable[[_Function], _Function]:
    """Return a `--version` option that names the tool, its version and the PEF format."""

    def show(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
        if value and not context.resilient_parsing:
            from importlib.metadata import version

            from pef import FORMAT_VERSION

            number = ".".join(map(str, FORMAT_VERSION))
            click.echo(f"{tool} {version('sambaflow')} (PEF format {number})")
            context.exit(DONE)

    return click.option(
        "--version",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Show the version and exit.",
    )


def run(
    command: click.Command,
    name: str,
    user_errors: UserErrors,
    leave: Callable[[int], NoReturn] = sys.exit,
) -> NoReturn:
    """Run `command` on the arguments of this process and `leave` with its exit code.

    The code is what the command returns, or 0. `user_errors` names the exceptions whose text is
    for users; it is only asked when something was raised, so it may import what is slow.
    """
    settings = Settings()
    _complete(command, name)
    try:
        with _terminable():
            code = _invoke(command, name, settings)
            _flush()
    except BrokenPipeError:
        code = DONE  # the reader has what it wanted
    except (click.Abort, KeyboardInterrupt) as error:
        code = _interrupted(error, settings)
    except Wrong as error:
        _say(f"Error: {error.message}", settings)
        code = WRONG
    except click.ClickException as error:
        with _deaf_ears():
            error.show()
        code = error.exit_code
    except Exception as error:  # the one place where everything ends
        if (interrupt := interrupt_behind(error)) is not None:
            code = _interrupted(interrupt, settings)
        else:
            code = _explain(error, name, user_errors, settings)
    _abandon_output()
    leave(code)


def leave_at_once(code: int) -> NoReturn:
    """End the process without taking it apart.

    Giving back sessions and modules one by one takes longer than many a run; the system gives
    everything back at once.
    """
    if sys.stderr is not None:
        with _deaf_ears():
            sys.stderr.flush()
    os._exit(code)


def is_terminal(stream: TextIO | None) -> bool:
    """Tell whether a person looks at `stream`, which is None if the caller closed it."""
    return stream is not None and stream.isatty()


def prose_width() -> int:
    """Return how wide prose is printed: as the terminal, up to what is easy to read."""
    width = get_terminal_size().columns if is_terminal(sys.stdout) else WIDTH
    return min(width, _WIDEST)


def _flush() -> None:
    """Write out what is buffered; there is no standard output if the caller closed it."""
    if sys.stdout is not None:
        sys.stdout.flush()


def _abandon_output() -> None:
    """Drop what standard output does not take, or it would fail again when Python ends."""
    try:
        _flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _invoke(command: click.Command, name: str, settings: Settings) -> int:
    """Run `command` as click does, but leave broken pipes and interrupts to `run`."""
    try:
        with (
            settings.until_the_end,
            command.make_context(name, sys.argv[1:], obj=settings) as context,
        ):
            return command.invoke(context) or DONE
    except click.exceptions.Exit as leave:
        return leave.exit_code


@contextmanager
def needs_compiler() -> Iterator[None]:
    """Say what to install where the block imports what only compiling needs, and that is absent."""
    try:
        yield
    except ModuleNotFoundError as error:
        from pef.wording import to_compile_with  # with which much else is loaded

        if not (words := to_compile_with(error)):
            raise
        raise Wrong(words) from error


def _complete(command: click.Command, name: str) -> None:
    """Answer the shell and leave, if it asks how to complete what has been typed."""
    variable = f"_{name.upper()}_COMPLETE"
    asked = os.environ.get(variable)
    if asked:
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(command, {}, name, variable, asked))


@contextmanager
def _terminable() -> Iterator[None]:
    """Make an exception of SIGTERM in the block, so that what is begun comes to its end."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    del number, frame
    raise Terminated


def _interrupted(error: BaseException, settings: Settings) -> int:
    """Say what has ended the command, and return the exit code for it."""
    # click makes its own error of an interrupt.
    if isinstance(interrupt_behind(error), Terminated):
        _say("Terminated.", settings)
        return TERMINATED
    _say("Interrupted.", settings)
    return INTERRUPTED


def _explain(error: Exception, name: str, user_errors: UserErrors, settings: Settings) -> int:
    """Print what went wrong and return the exit code for it."""
    if isinstance(error, user_errors()):
        _say(f"Error: {error}", settings)
        return WRONG
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        _say(f"Error: {where}{error.strerror or error}.", settings)
        return WRONG
    if isinstance(error, MemoryError):
        _say("Error: there is not enough memory.", settings)
        return WRONG
    _say(
        f"Internal error: {type(error).__name__}: {error}\n"
        f"This is a fault of {name}, not of your input. Run it again with -v for the traceback.",
        settings,
    )
    return INTERNAL


def _say(text: str, settings: Settings) -> None:
    """Print to stderr, with the traceback of the current exception where that is wanted."""
    text = visible(text)
    if is_terminal(sys.stderr):
        first, colon, rest = text.partition(":")
        text = click.style(first + colon, fg="red", bold=True) + rest if colon else text
    with _deaf_ears():
        if settings.verbose:
            import traceback

            echo(traceback.format_exc().rstrip("\n"), err=True)
        click.echo(text, err=True)


def _deaf_ears() -> AbstractContextManager[None]:
    """Return a context in which stderr may fail: nobody can be told, and the code says enough."""
    return suppress(OSError)
