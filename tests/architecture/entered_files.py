"""Which files of the project a compilation or a run enters: those of which it calls a function.

    python tests/architecture/entered_files.py inference    of an .onnx file, MatMul and Relu
    python tests/architecture/entered_files.py training     a step of one torch.nn.Linear
    python tests/architecture/entered_files.py running      the first one, run a second time

What modules do while they are imported does not count, nor do comprehensions.
"""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import numpy as np
import onnx

import sambac
import sambarun

ROOT = Path(__file__).parents[2]
PRODUCT = tuple(str(ROOT / package) for package in ("compiler", "runtime", "schema"))
NO_FUNCTIONS = frozenset({"<module>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
Calls = Mapping[str, set[str]]
"""Names of functions, by the file that they stand in."""


@contextmanager
def watched() -> Iterator[Calls]:
    """Collect the calls of functions of the project."""
    calls: defaultdict[str, set[str]] = defaultdict(set)
    importing = 0

    def watch(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal importing
        code = frame.f_code
        if code.co_name == "<module>":
            importing += {"call": 1, "return": -1}.get(event, 0)
        counts = event == "call" and not importing and code.co_name not in NO_FUNCTIONS
        if counts and code.co_filename.startswith(PRODUCT):
            calls[str(Path(code.co_filename).relative_to(ROOT))].add(code.co_qualname)

    sys.setprofile(watch)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def inference(folder: Path) -> Calls:
    """Compile an .onnx file of two operators and write the PEF."""
    weights = ", ".join("0.5" for _ in range(128))
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        small (float[4, 8] x) => (float[4, 16] y) <float[8, 16] w = {{{weights}}}>
        {{
          t = MatMul (x, w)
          y = Relu (t)
        }}""")
    path = folder / "small.onnx"
    onnx.save_model(model, path)
    with watched() as calls:
        sambac.compile(path).save(folder / "small.pef")
    return calls


def training(folder: Path) -> Calls:
    """Compile a step of a linear layer with an optimizer, and write the PEF."""
    import torch

    module, example = torch.nn.Linear(8, 4), torch.zeros(2, 8)
    options = sambac.CompileOptions(
        train=True, loss=("mse:output,target",), optimizers=(sambac.SGD(lr=0.1),)
    )
    with watched() as calls:
        sambac.compile(module, options, inputs=(example,)).save(folder / "step.pef")
    return calls


def running(folder: Path) -> Calls:
    """Run the program of `inference` on new inputs, as it has been run before."""
    inference(folder)
    with sambarun.load(folder / "small.pef") as executable:
        executable.run({"x": np.zeros((4, 8), np.float32)})
        with watched() as calls:
            executable.run({"x": np.ones((4, 8), np.float32)})
    return calls


KINDS: Mapping[str, Callable[[Path], Calls]] = {
    "inference": inference,
    "training": training,
    "running": running,
}

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        entered = KINDS[sys.argv[1]](Path(scratch))
    for file, functions in sorted(entered.items()):
        print(f"{file}: {', '.join(sorted(functions))}")
