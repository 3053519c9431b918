"""What a benchmark finds: a table, a plot and remarks, written to `benchmarks/results`."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RESULTS = Path(__file__).parent / "results"

Cell = str | int | float


@dataclass(frozen=True)
class Report:
    """The answer to one question.

    `rows` have a cell for each of `columns`; `summary` are sentences with the numbers that matter,
    `method` says how it was measured. `plot` draws on a matplotlib axes.
    """

    name: str
    question: str
    method: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    summary: Sequence[str]
    plot: Callable[[Axes], None] = field(repr=False)


def geometric_mean(values: Sequence[float]) -> float:
    """The n-th root of the product of n positive numbers."""
    return math.exp(sum(map(math.log, values)) / len(values))


def write(report: Report, folder: Path = RESULTS) -> None:
    """Write `<name>.md`, `<name>.json` and `<name>.png` to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{report.name}.md").write_text(to_markdown(report), encoding="utf-8")
    facts = {
        "name": report.name,
        "machine": _machine(),
        "columns": list(report.columns),
        "rows": [list(row) for row in report.rows],
        "summary": list(report.summary),
    }
    text = json.dumps(facts, indent=1) + "\n"
    (folder / f"{report.name}.json").write_text(text, encoding="utf-8")
    _draw(report, folder / f"{report.name}.png")


def to_markdown(report: Report) -> str:
    """The report as a page."""
    lines = [f"# {report.question}", "", *(f"**{line}**\n" for line in report.summary)]
    lines += ["| " + " | ".join(report.columns) + " |"]
    lines += ["|" + "|".join(["---"] + ["--:"] * (len(report.columns) - 1)) + "|"]
    lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in report.rows]
    facts = ", ".join(f"{key} {value}" for key, value in _machine().items())
    lines += [
        "",
        f"![{report.name}]({report.name}.png)",
        "",
        report.method,
        "",
        f"Machine: {facts}.",
    ]
    return "\n".join(lines) + "\n"


def bars(
    labels: Sequence[str], values: Sequence[float], *, title: str, limit: float, par: float = 0.0
) -> Callable[[Axes], None]:
    """A plot of horizontal bars with a line at `par` and a dashed one at `limit`."""

    def draw(axes: Axes) -> None:
        axes.barh(list(labels), list(values), color="#4c78a8")
        axes.axvline(par, color="black", linewidth=0.8)
        axes.axvline(limit, color="#e45756", linestyle="--", linewidth=0.8)
        for index, value in enumerate(values):
            axes.text(value, index, f" {value:.2f}", va="center", fontsize=8)
        axes.invert_yaxis()
        axes.set_title(title, fontsize=10)

    return draw


def _cell(value: Cell) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _machine() -> dict[str, str]:
    """The facts of this machine that numbers depend on, none that names it."""
    return {
        "cores": str(os.cpu_count()),
        "processor": platform.machine(),
        "with": " ".join(_extensions()) or "no vector extension that is known",
        "Python": platform.python_version(),
        "onnxruntime": version("onnxruntime"),
    }


def _draw(report: Report, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    report.plot(figure.subplots())
    # Without the metadata, equal plots are equal files.
    figure.savefig(path, dpi=120, metadata={"Software": None})


_EXTENSIONS = ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_bf16", "asimd")
"""What kernels are chosen by, as Linux names it."""


def _extensions() -> list[str]:
    """The vector extensions of this processor that speed depends on; none where nobody tells."""
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    except OSError:
        return []
    return [name for name in _EXTENSIONS if name in told]
