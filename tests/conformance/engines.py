"""The ways a case is run: plain onnxruntime, and compile, file, load, run at a level."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cases import Case
from compare import check_outputs

# An engine runs a case in a scratch folder and raises when anything is wrong.
Engine = Callable[[Case, Path], None]


def run_plain(case: Case, folder: Path) -> None:
    """One ordinary session, fed with the values just as the suite has them."""
    _run_session(case, lambda value: value)


def run_plain_arrays(case: Case, folder: Path) -> None:
    """One ordinary session; numpy's scalars, which `run` refuses, are made arrays first."""
    _run_session(case, lambda value: np.asarray(value) if np.isscalar(value) else value)


def run_compiled(case: Case, folder: Path, level: Any) -> None:
    """Compile at `level`, write and verify the file, load it, and run every data set.

    A program of several sections runs twice: linked, and each section by itself.
    """
    import pef
    import sambac
    from sambac.reconstruct.verify import check_plans

    path = folder / "case.pef"
    program = sambac.compile(case.model, options=sambac.CompileOptions(level=level))
    program.save(path)
    if problems := check_plans(pef.verify(path)):
        raise AssertionError(f"wrong plans: {problems[0]}")
    for link in (True, False) if len(program.sections) > 1 else (True,):
        _run_file(case, path, link=link)


def _run_file(case: Case, path: Path, *, link: bool) -> None:
    import sambarun

    executable = sambarun.load(path, threads=1, own_process=True, link=link)
    try:
        for inputs, expected in case.sets():
            feeds = dict(zip(case.input_names(), inputs, strict=False))
            outputs = list(executable.run(feeds).values())
            check_outputs(expected, outputs, case.rtol, case.atol)
    finally:
        executable.close()


def _run_session(case: Case, feed: Callable[[Any], Any]) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    model = str(case.model) if isinstance(case.model, Path) else case.model.SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names: Sequence[str] = [value.name for value in session.get_inputs()]
    for inputs, expected in case.sets():
        feeds = dict(zip(names, map(feed, inputs), strict=False))
        check_outputs(expected, session.run(None, feeds), case.rtol, case.atol)


ENGINES: Mapping[str, Engine] = {
    "plain": run_plain,
    "plain-arrays": run_plain_arrays,
    "O0": lambda case, folder: run_compiled(case, folder, "O0"),
    "O3": lambda case, folder: run_compiled(case, folder, "O3"),
}
