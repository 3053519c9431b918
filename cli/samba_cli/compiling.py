"""`sambac compile`: options from words, progress on a terminal, and the two lines at the end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from pathlib import Path

import click

from .compile_options import options_from
from .shell import DONE, Settings, Wrong, echo, is_terminal
from .targets import check_kind, check_targets

_NOT_MODELS = {
    ".pt": "a PyTorch file of weights",
    ".pth": "a PyTorch file of weights",
    ".tflite": "a TensorFlow Lite model",
    ".pb": "a TensorFlow graph",
    ".safetensors": "a file of weights",
    ".pef": "compiled already; run it with sambarun",
}
_MODELS = "an ONNX file (.onnx), an exported program (.pt2) or FILE.py:NAME"
_NO_DATA_FILES = (".py", ".pt2")
_WARNINGS_SHOWN = 3
_FILES_READ = ("arch", "calibrate", "expect", "fusion_rules", "number_rules", "tuning")
"""Options that may name a file that is read."""


def compile_to_file(
    model: str, output: Path | None, words: Mapping[str, object], *, timing: bool
) -> int:
    """Compile a model, write the PEF and its log, and print where they are and what they hold.

    `words` are the options of the compilation. With `timing`, a table of its stages follows.
    """
    source = model_file(model)
    options = options_from(words)
    target = output or Path(source.stem + ".pef")
    read = files_read(words)
    log = Path(f"{target}.log")
    for written in (target, log) if log.is_file() else (target,):
        check_targets((written,), (source, *read, *data_files(source, written)))
    check_kind(target, ".pef")
    import sambac
    from pef.report import File, report
    from sambac.emit import write_log

    clock = StageClock()
    with progress(source.name) as show:
        stage = clock.watched(show)
        with named(source):
            program = sambac.compile(model, options, stage)
        stage("write")
        program.save(target)
        facts = report(program, File(name=target.name, bytes=target.stat().st_size))
        log = write_log(facts, target)
    from .summaries import compiled

    clock.stop()
    echo("\n".join(compiled(facts, target, log)))
    if timing:
        echo("\n".join(clock.lines()))
    warned = facts["warnings"]
    for warning in warned[:_WARNINGS_SHOWN]:
        echo(f"Warning: {warning}", err=True)
    if len(warned) > _WARNINGS_SHOWN:
        echo(f"Warning: {len(warned) - _WARNINGS_SHOWN} more in the log.", err=True)
    return DONE


def files_read(words: Mapping[str, object]) -> list[str]:
    """Return the files that options of a compilation name, which it reads beside the model."""
    return [word for name in _FILES_READ if os.path.exists(word := str(words.get(name) or ""))]


def data_files(source: Path, output: Path) -> Iterable[Path]:
    """Return the files in which an ONNX model keeps weights, if `output` may be one of them.

    That is so if the model holds its name, which is found faster than all of them are read.
    """
    if source.suffix.lower() in _NO_DATA_FILES or not output.is_file() or not source.stat().st_size:
        return ()
    name = os.path.basename(os.path.realpath(output)).encode()
    with source.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        if content.find(name) < 0:
            return ()
    from sambac.frontend.onnx import external_files

    return external_files(source)


@contextmanager
def named(source: Path) -> Iterator[None]:
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


def model_file(model: str) -> Path:
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


class StageClock:
    """How long each stage of a compilation takes; one that runs twice counts once."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._stage = "import"
        self._begin = time.perf_counter()

    def watched(self, show: Callable[[str], None]) -> Callable[[str], None]:
        """Return what to call with the name of each stage as it begins; it calls `show`, too."""

        def begin(stage: str) -> None:
            self.stop()
            self._stage = stage
            show(stage)

        return begin

    def stop(self) -> None:
        """End the present stage."""
        now = time.perf_counter()
        self._seconds[self._stage] = self._seconds.get(self._stage, 0.0) + now - self._begin
        self._begin = now

    def lines(self) -> list[str]:
        """Return a table of the stages in the order in which they began, and their sum."""
        from pef.text import human_time, table

        whole = sum(self._seconds.values())
        rows = [
            (stage, human_time(seconds * 1e6), f"{seconds / whole:.0%}")
            for stage, seconds in (*self._seconds.items(), ("all", whole))
        ]
        return list(table(("stage", "time", "share"), rows, right=("time", "share")))


@contextmanager
def progress(name: str) -> Iterator[Callable[[str], None]]:
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
    return lambda stage: echo(f"{time.perf_counter() - begin:8.2f} s  {stage}", err=True)
