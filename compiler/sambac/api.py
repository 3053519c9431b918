"""The calls that compile, and the one that measures: what they take is checked here.

Options and optimizers are plain data, so that commands and applications describe a compilation,
and refuse what cannot be meant, before anything that it takes is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pef.arguments import NAME, NUMBER, THREADS, Kind, instance, named, some
from pef.program import Program
from pef.wording import to_compile_with

from .errors import CompileError, require_arguments
from .models import GraphSource, Inputs, Model, Progress, Shapes
from .options import CompileOptions

if TYPE_CHECKING:
    from .tuning_file import HostTuning

_OPTIONS = instance(
    CompileOptions, "sambac.CompileOptions, such as CompileOptions(level='O1')"
).or_none()
_PROGRESS = Kind("a function of a stage's name", callable).or_none()
_GRAPHS = some(instance(GraphSource, ""), "a list of sambac.GraphSource")
_SHARED = named(NAME, "a dict of regions by name").or_none()
_SECONDS = NUMBER.above(0).or_none()


def compile(
    model: Model,
    options: CompileOptions | None = None,
    progress: Progress | None = None,
    *,
    inputs: Inputs | None = None,
    dynamic_shapes: Shapes | None = None,
) -> Program:
    """Compile `model` into a program that `sambarun.load` runs and `Program.save` stores.

    `model` is the path of an .onnx file, of a .pt2 program, or `file.py:callable`; an
    onnx.ModelProto or onnx_ir.Model; a torch.nn.Module, with example `inputs` (a tuple, or a dict
    by argument), or a torch.export.ExportedProgram. `dynamic_shapes` says which sizes of a module's
    inputs stay open until the program runs, as torch.export.export takes it; not in training.
    `progress` is called with the name of each stage as it begins. Raises `CompileError` for what
    the user can mend, `InternalError` where the compiler broke its own rules.
    """
    require_arguments(options=(options, _OPTIONS), progress=(progress, _PROGRESS))
    with _libraries():
        # The compiler takes long to load: who asks for options, or for the error, does without.
        from .pipeline import compile_model

        chosen = options or CompileOptions()
        return compile_model(model, chosen, progress or _silent, inputs, dynamic_shapes)


def compile_graphs(
    graphs: Sequence[GraphSource],
    options: CompileOptions | None = None,
    progress: Progress | None = None,
    *,
    shared: Mapping[str, str] | None = None,
) -> Program:
    """Compile several models into one program, with a named graph for each.

    A model that trains, as `options` or its own say, has two: `name/train`, its training step, and
    `name/eval`. Weights that graphs share (one tensor, or equal ones of one name that nobody
    trains) and equal section programs are in the program once. Inputs and outputs keep their names
    in each graph; other names get the name of their graph in front (`decode.x`) where an earlier
    graph has them already.

    `shared` maps inputs and outputs (`encode.h`, or `h` in every graph) to names of regions. Those
    in one region share memory, which keeps its content from run to run: an output in it is what an
    input in it reads when the caller gives nothing else. Of one graph it holds one input and one
    output at most, and outputs of whole numbers get the type of the inputs there. Weights in one
    region are one weight, whatever graphs call them: what one graph
    trains, the others read. Without a region that holds for weights that are one tensor in memory,
    and each weight without content (see `compile`) is its graph's own.

    Raises as `compile` does, for graphs without names of their own, and for options of one graph
    that are the whole program's.
    """
    require_arguments(options=(options, _OPTIONS), progress=(progress, _PROGRESS))
    require_arguments(graphs=(graphs, _GRAPHS), shared=(shared, _SHARED))
    with _libraries():
        # As in `compile`.
        from .pipeline import compile_models

        chosen = options or CompileOptions()
        return compile_models(graphs, chosen, progress or _silent, shared or {})


@contextmanager
def _libraries() -> Iterator[None]:
    """Raise `CompileError` where the block imports what only compiling needs, if it is absent."""
    try:
        yield
    except ModuleNotFoundError as error:
        if not (words := to_compile_with(error)):
            raise
        raise CompileError(words) from error


def tune(
    model: Model,
    options: CompileOptions | None = None,
    progress: Progress | None = None,
    *,
    inputs: Inputs | None = None,
    dynamic_shapes: Shapes | None = None,
    threads: int | None = None,
    seconds: float | None = None,
) -> HostTuning:
    """Measure on this host which formulations of the operators of `model` are the fastest.

    `model`, `options`, `inputs` and `dynamic_shapes` are those of `compile`, `progress` is called
    with each stage and each measurement. Measured is with `threads` (None: as many as there are
    cores), for about so many `seconds` (None: 60), what takes most time first. `save` of the result
    writes the file that `CompileOptions(tuning=...)` takes; nothing else depends on the host.
    Raises as `compile` does.
    """
    require_arguments(options=(options, _OPTIONS), progress=(progress, _PROGRESS))
    require_arguments(threads=(threads, THREADS.or_none()), seconds=(seconds, _SECONDS))
    chosen = options or CompileOptions()
    if chosen.tuning is not None:
        raise CompileError("tuning: tune measures anew, and reads no tuning file; leave it out.")
    with _libraries():
        # As in `compile`.
        from .pipeline import lower_model
        from .tuning import tune_choices

        report = progress or _silent
        _, lowered = lower_model(model, chosen, report, inputs, dynamic_shapes)
        return tune_choices(lowered.record.choices, threads, seconds, report)


def _silent(_stage: str) -> None:
    """Tell nobody of a stage."""
