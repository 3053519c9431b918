"""ResNet-50 from an ONNX file to a result, with the real commands: run by `make demo`.

The network is the one inside the onnx package with random weights, so nothing is downloaded. Its
result is compared with what plain onnxruntime computes from the same file.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the generators live in benchmarks/, which is not installed

from benchmarks.models import light  # noqa: E402

NETWORK = "resnet50"
FOLDER = ROOT / "build" / "demo"


def main() -> None:
    """Make the network, compile it, look at it, run it."""
    say("ResNet-50 with random weights, and what plain onnxruntime makes of a random picture:")
    model = light.save(light.randomized(NETWORK), FOLDER / f"{NETWORK}.onnx")
    given, expected = reference(model)
    for file in (model, model.with_name(model.name + ".data")):
        print(f"  {file.relative_to(ROOT)}  {file.stat().st_size / 1e6:.1f} MB")

    pef = model.with_suffix(".pef")
    say("Compile it. The log beside the PEF says what became of it:")
    command("sambac", "compile", shown(model), "-o", shown(pef))
    say("Its sections, and what each region of the device's memory holds:")
    command("sambac", "inspect", shown(pef))
    say("Run its forward section and compare with plain onnxruntime:")
    command("sambarun", shown(pef), "--sections", "FWD", "--input", given, "--expect", expected)
    say("How fast is it?")
    command("sambarun", shown(pef), "--input", given, "--iterations", "20")
    say(f"Everything is in {shown(FOLDER)}. Other levels and options: sambac compile --help")


def reference(model: Path) -> tuple[str, str]:
    """Run plain onnxruntime on a picture; returns the arguments that name its files."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (source,), (result,) = session.get_inputs(), session.get_outputs()
    picture = light.image()
    values = {"picture": picture, "expected": session.run(None, {source.name: picture})[0]}
    for name, value in values.items():
        np.save(FOLDER / f"{name}.npy", value)
    return (
        f"{source.name}=@{shown(FOLDER / 'picture.npy')}",
        f"{result.name}=@{shown(FOLDER / 'expected.npy')}",
    )


def command(*arguments: str) -> None:
    """Print a command line and run it; leave with its exit code if it fails."""
    print(f"\n  $ {shlex.join(arguments)}\n", flush=True)
    program = Path(sys.executable).with_name(arguments[0])
    start = time.perf_counter()
    code = subprocess.run([program, *arguments[1:]], cwd=ROOT, check=False).returncode
    if code:
        sys.exit(code)
    print(f"\n  ({time.perf_counter() - start:.1f} s)")


def say(text: str) -> None:
    """Print a line of the story."""
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def shown(path: Path) -> str:
    """A path as the command lines show it, relative to the repository."""
    return str(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
