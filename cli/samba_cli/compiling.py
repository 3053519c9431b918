"""`sambac compile`: options from words, progress on a terminal, and the two lines at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click

from .compile_options import options_from
from .shell import DONE, Settings, Wrong, is_terminal
from .targets import check_target

_NOT_MODELS = {
    ".pt": "a PyTorch file of weights",
    ".pth": "a PyTorch file of weights",
    ".tflite": "a TensorFlow Lite model",
    ".pb": "a TensorFlow graph",
    ".safetensors": "a file of weights",
    ".pef": "compiled already; run it with sambarun",
}
_MODELS = "an ONNX file (.onnx), an exported program (.pt2) or FILE.py:NAME"
_WARNINGS_SHOWN = 3


def compile_to_file(model: str, output: Path | None, words: Mapping[str, object]) -> int:
    """Compile a model, write the PEF and its log, and print where they are and what they hold.

    `words` are the options of the compilation.
    """
    source = _model_file(model)
    options = options_from(words)
    target = output or Path(source.stem + ".pef")
    check_target(target, source)
    import sambac
    from pef.report import report
    from pef.report_rows import File
    from sambac.log import write_log

    with _progress(source.name) as stage:
        with _named(source):
            program = sambac.compile(model, options, stage)
        stage("write")
        program.save(target)
        facts = report(program, File(name=target.name, bytes=target.stat().st_size))
        log = write_log(facts, target)
    from .summaries import compiled

    click.echo("\n".join(compiled(facts, target, log)))
    warned = facts["warnings"]
    for warning in warned[:_WARNINGS_SHOWN]:
        click.echo(f"Warning: {warning}", err=True)
    if len(warned) > _WARNINGS_SHOWN:
        click.echo(f"Warning: {len(warned) - _WARNINGS_SHOWN} more in the log.", err=True)
    return DONE


@contextmanager
def _named(source: Path) -> Iterator[None]:
    """Put the name of the model's file in front of a refusal that does not have it already."""
    from sambac import CompileError

    try:
        yield
    except CompileError as error:
        said, stem = str(error), source.stem
        if any(name in said for name in (source.name, f"'{stem}'")):
            raise
        if said.startswith((f"{stem} ", f"{stem}: ")):
            raise
        raise CompileError(f"{source.name}: {said}") from error


def _model_file(model: str) -> Path:
    """Return the file behind MODEL; raise `Wrong` for what holds no model."""
    file, colon, name = model.rpartition(":")
    path = Path(file if colon and file.endswith(".py") else model)
    suffix = path.suffix.lower()
    if suffix in _NOT_MODELS:
        cure = "" if suffix == ".pef" else f"; {_MODELS} was expected"
        raise Wrong(f"{model} is {_NOT_MODELS[suffix]}{cure}.")
    if not path.exists():
        raise Wrong(f"{path} does not exist.")
    if path.is_dir():
        raise Wrong(f"{path} is a folder; {_MODELS} was expected.")
    if suffix == ".py" and not name.isidentifier():
        raise Wrong(
            f"{model} is Python source; say which function of it makes the model: {path}:NAME."
        )
    return path


@contextmanager
def _progress(name: str) -> Iterator[Callable[[str], None]]:
    """Yield what to call with the name of each stage: a spinner, lines with -v, or nothing."""
    if click.get_current_context().ensure_object(Settings).verbose:
        yield _stage_lines()
    elif not is_terminal(sys.stderr):
        yield lambda stage: None
    else:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task(name, total=None)
            yield lambda stage: progress.update(task, description=f"{name}: {stage}")


def _stage_lines() -> Callable[[str], None]:
    """Return a function that prints each stage as it begins, with the time since the first."""
    begin = time.perf_counter()
    return lambda stage: click.echo(f"{time.perf_counter() - begin:8.2f} s  {stage}", err=True)
