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

from pef.text import human_bytes

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the generators live in benchmarks/, which is not installed

from benchmarks.models import light  # noqa: E402

NETWORK = "resnet50"
FOLDER = ROOT / "build" / "demo"
ROWS = 16  # of a table


def main() -> None:
    """Make the network, compile it, look at it, run it."""
    say("ResNet-50 with random weights, and what plain onnxruntime makes of a random picture:")
    model = light.save(light.randomized(NETWORK), FOLDER / f"{NETWORK}.onnx")
    given, expected = reference(model)
    for file in (model, model.with_name(model.name + ".data")):
        print(f"  {file.relative_to(ROOT)}  {human_bytes(file.stat().st_size)}")

    whole, modules = shown(FOLDER / f"{NETWORK}.pef"), shown(FOLDER / f"{NETWORK}-O1.pef")
    say("Compile it into one file:")
    command("sambac", "compile", shown(model), "-o", whole)
    say("What it holds, and what each region of the device's memory holds:")
    show("Regions", "Sections", "Largest symbols", of=whole)
    say("The same at O1, a section for each group of operators that the rules fuse:")
    command("sambac", "compile", shown(model), "-O1", "-o", modules)
    show("Regions", "Sections", of=modules)
    say("Run the forward sections of both files and compare with plain onnxruntime:")
    for file in (modules, whole):
        command("sambarun", file, "--sections", "FWD", "--input", given, "--expect", expected)
    say("The result, and how fast it comes:")
    command("sambarun", whole, "--input", given, "--iterations", "20")
    say(f"Everything is in {shown(FOLDER)}, with a log beside each PEF. Where to go from here:")
    print("  sambac inspect FILE   sambac compile --help   sambarun --help")


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
    """Print a command line, run it, and say how long it took."""
    start = time.perf_counter()
    print(run(*arguments), end="")
    print(f"  ({time.perf_counter() - start:.1f} s)", flush=True)


def show(*titles: str, of: str) -> None:
    """Run `sambac inspect` and print its summary and the tables with these titles."""
    summary, *tables = run("sambac", "inspect", of).split("\n\n")
    print(summary)
    wanted = [table for table in tables if table.startswith(titles)]
    for table in sorted(wanted, key=lambda table: table.startswith("Sections")):
        lines = table.splitlines()
        print("", *lines[:ROWS], sep="\n")
        if len(lines) > ROWS:
            print(f"  ... {len(lines) - ROWS} more")
    print(f"\n  (and {len(tables) - len(wanted)} more tables)", flush=True)


def run(*arguments: str) -> str:
    """Print a command line, run it and return what it prints; leave with its code if it fails."""
    print(f"\n  $ {shlex.join(arguments)}\n", flush=True)
    program = Path(sys.executable).with_name(arguments[0])
    done = subprocess.run(
        [program, *arguments[1:]], cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        print(done.stdout)
        sys.exit(done.returncode)
    return done.stdout


def say(text: str) -> None:
    """Print a line of the story."""
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def shown(path: Path) -> str:
    """A path as the command lines show it, relative to the repository."""
    return str(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
