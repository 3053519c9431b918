"""`sambac compile`: options from words, progress on a terminal, and the two lines at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from .compile_options import TrainingWords, optimizers, refuse_without_train
from .shell import DONE, Settings, Wrong, is_terminal
from .targets import check_target

if TYPE_CHECKING:
    from sambac import CompileOptions, InputSpec
    from sambac.options import Level, MappingKind, Precision

_NOT_MODELS = {
    ".pt": "a PyTorch file of weights",
    ".pth": "a PyTorch file of weights",
    ".tflite": "a TensorFlow Lite model",
    ".pb": "a TensorFlow graph",
    ".safetensors": "a file of weights",
    ".pef": "compiled already; run it with sambarun",
}
_LEVELS: dict[str, Level] = {"0": "O0", "1": "O1", "3": "O3"}
_MODELS = "an ONNX file (.onnx), an exported program (.pt2) or FILE.py:NAME"
_WARNINGS_SHOWN = 3


class Words(TrainingWords):
    """What the command line says, as click hands it over."""

    model: str
    output: Path | None
    level: Literal["0", "1", "3"]
    mapping: MappingKind
    precision: Precision
    arch: str
    inputs: tuple[str, ...]
    io_host_memory: bool
    fusion_rules: Path | None


def compile_to_file(words: Words) -> int:
    """Compile a model, write the PEF and its log, and print where they are and what they hold."""
    model = words["model"]
    source = _model_file(model)
    if words["fusion_rules"] is not None and words["level"] != "1":
        raise Wrong("--fusion-rules are for -O1; give -O1, or leave them out.")
    refuse_without_train(words)
    target = words["output"] or Path(source.stem + ".pef")
    check_target(target, source)
    import sambac
    from pef.report import report
    from pef.report_rows import File
    from sambac.log import write_log

    with _progress(source.name) as stage:
        options = _options(words)
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


def _options(words: Words) -> CompileOptions:
    from sambac import CompileOptions

    return CompileOptions(
        level=_LEVELS[words["level"]],
        mapping=words["mapping"],
        precision=words["precision"],
        arch=words["arch"],
        inputs=dict(input_spec(text) for text in words["inputs"]),
        io_host_memory=words["io_host_memory"],
        fusion_rules=words["fusion_rules"],
        train=words["train"],
        loss=words["loss"],
        optimizers=optimizers(words["optimizer"]),
        freeze=words["freeze"],
        max_grad_norm=words["max_grad_norm"],
        balance=words["balance"],
        accumulate=words["accumulate"],
        recompute=words["recompute"],
        data_parallel=words["data_parallel"],
    )


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


def input_spec(text: str) -> tuple[str, InputSpec]:
    """Return the name and the specification in `NAME=1x3x224x224:float32`."""
    from pef.dtypes import BY_NAME
    from pef.wording import did_you_mean
    from sambac import InputSpec

    name, _, spec = text.rpartition("=")
    dims, colon, dtype = spec.partition(":")
    sizes = dims.split("x") if dims else []
    if not name or not all(size.isascii() and size.isdecimal() for size in sizes):
        raise Wrong(
            f"--input {text}: expected NAME=SHAPE or NAME=SHAPE:DTYPE, "
            "for instance data=1x3x224x224 or ids=1x128:int64."
        )
    if colon and dtype not in BY_NAME:
        hint = did_you_mean(dtype, BY_NAME) or f"; known are {', '.join(BY_NAME)}"
        raise Wrong(f"--input {text}: {dtype!r} is no element type{hint}.")
    number = BY_NAME[dtype].number if colon else None
    return name, InputSpec(shape=tuple(map(int, sizes)), dtype=number)


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
