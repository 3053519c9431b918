"""Regions by cost: what runs take with them, beside the default policy and an exact solver."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import sambac
from benchmarks import zoo
from benchmarks.exact_placement import SECONDS, Exact, least_seconds
from benchmarks.models import language, synthetic
from benchmarks.report import Cell, Report
from pef.symbols import RegionKind
from sambac.arch import arch_text, load_arch
from sambac.pipeline import lower_model
from sambac.planning.estimate import estimate
from sambac.planning.plans import CostReport, LoweredGraphs, ProgramPlan
from sambac.planning.program import plan_program

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHARES = (0.3, 0.5, 0.7, 0.9)
LIMIT = 1.05
_DEVICE = "sn40l"
_ALIGNMENT = 64


@dataclass(frozen=True)
class Entry:
    """A program: `make` returns what `lower_model` takes of it."""

    make: Callable[[], tuple[object, sambac.CompileOptions, object]]


@dataclass(frozen=True)
class Placed:
    """The seconds of a run with so many bytes of HBM: by cost, by the policy, at the least."""

    share: float
    chosen: float
    policy: float
    exact: Exact

    @property
    def gap(self) -> float:
        """What is chosen over the best answer known, or over the bound where there is none."""
        return self.chosen / (self.exact.seconds or self.exact.bound)


def _onnx(make: Callable[[], object], level: str) -> Entry:
    return Entry(lambda: (make(), sambac.CompileOptions(level=level, arch=_DEVICE), None))


def _module(make: Callable[[], language.Example], level: str) -> Entry:
    def made() -> tuple[object, sambac.CompileOptions, object]:
        module, inputs = make()
        return module, sambac.CompileOptions(level=level, arch=_DEVICE), inputs

    return Entry(made)


def _step(make: Callable[[], language.Example], level: str) -> Entry:
    def made() -> tuple[object, sambac.CompileOptions, object]:
        module, inputs = make()
        optimizers = (sambac.AdamW(lr=1e-3),)
        options = sambac.CompileOptions(
            level=level, arch=_DEVICE, train=True, optimizers=optimizers
        )
        return module, options, inputs

    return Entry(made)


def _llama(layers: int, name: str = "Llama-3-8B") -> language.LlamaShape:
    return replace(language.LLAMA[name], layers=layers)


_SMALL_GPT2 = language.Gpt2Shape(hidden=256, layers=2, heads=4, vocabulary=5_000, length=128)
_WIDE_GPT2 = language.Gpt2Shape(hidden=768, layers=4, heads=12)

PROGRAMS: Mapping[str, Entry] = {
    "resnet50, O0": _onnx(zoo.NETWORKS["resnet50"].make, "O0"),
    "densenet121, O1": _onnx(zoo.NETWORKS["densenet121"].make, "O1"),
    "inception_v2, O0": _onnx(zoo.NETWORKS["inception_v2"].make, "O0"),
    "squeezenet, O0": _onnx(zoo.NETWORKS["squeezenet"].make, "O0"),
    "vgg19, O3": _onnx(zoo.NETWORKS["vgg19"].make, "O3"),
    "bert, O0": _onnx(zoo.NETWORKS["bert"].make, "O0"),
    "bert, O3": _onnx(zoo.NETWORKS["bert"].make, "O3"),
    "gpt, O1": _onnx(zoo.NETWORKS["gpt"].make, "O1"),
    "heavy, O0": _onnx(lambda: synthetic.heavy(12, 512), "O0"),
    "wide, O0": _onnx(lambda: synthetic.wide(400, 16), "O0"),
    "tangled 60, O0": _onnx(lambda: synthetic.tangled(60, 1), "O0"),
    "tangled 60, O1": _onnx(lambda: synthetic.tangled(60, 2), "O1"),
    "tangled 150, O0": _onnx(lambda: synthetic.tangled(150, 3), "O0"),
    "tangled 150, O3": _onnx(lambda: synthetic.tangled(150, 4), "O3"),
    "tangled 400, O0": _onnx(lambda: synthetic.tangled(400, 5), "O0"),
    "GPT-2 step, 2 x 256, O0": _step(lambda: language.gpt2_step(_SMALL_GPT2, 4), "O0"),
    "GPT-2 step, 4 x 768, O3": _step(lambda: language.gpt2_step(_WIDE_GPT2, 8), "O3"),
    "Llama-3-8B decode, 32 layers, O3": _module(lambda: language.decode(_llama(32), 1, 1024), "O3"),
    "Llama-3-8B decode, 8 layers, O0": _module(lambda: language.decode(_llama(8), 16, 1024), "O0"),
    "Llama-3-8B prefill, 8 layers, O3": _module(lambda: language.prefill(_llama(8), 4, 1024), "O3"),
}
"""Twenty programs, real ones and made ones, for inference and training."""


def run() -> Report:
    """Place the symbols of all programs in less HBM than they need."""
    rows: list[list[Cell]] = []
    for name, entry in PROGRAMS.items():
        for placed in placements(entry):
            rows.append(_row(name, placed))
            print(*rows[-1], sep="  ", flush=True)
    return _report(rows)


def placements(entry: Entry) -> Iterator[Placed]:
    """Yield what a run takes with each of the `SHARES` of the HBM that all symbols need at once."""
    model, options, inputs = entry.make()
    _, lowered = lower_model(model, options, lambda _: None, inputs)  # type: ignore[arg-type]
    whole, _ = _planned(lowered, options)
    need = next(r.peak_live for r in whole.memory.regions if r.kind is RegionKind.HBM)
    with tempfile.TemporaryDirectory() as folder:
        for share in SHARES:
            arch = str(Path(folder) / f"{share}.toml")
            Path(arch).write_text(device(int(share * need)), encoding="utf-8")
            small = replace(options, arch=arch)
            plan, costs = _planned(lowered, small)
            yield Placed(
                share,
                sum(costs.sections[section].estimate.latency for section in _schedule(plan)),
                sum(costs.policy),
                least_seconds(plan, load_arch(arch)),
            )


def device(hbm: int) -> str:
    """Return the description of a device with so many bytes of HBM, rounded up to whole units."""
    size = -(-hbm // _ALIGNMENT) * _ALIGNMENT
    pattern = r"(?m)^(\[hbm_capacity\]\nvalue = ).*$"
    return re.sub(pattern, rf"\g<1>{size}", arch_text(_DEVICE), count=1)


def _planned(
    lowered: LoweredGraphs, options: sambac.CompileOptions
) -> tuple[ProgramPlan, CostReport]:
    plan = plan_program(lowered, options, lambda _: None)
    return plan, estimate(plan, load_arch(options.arch))


def _schedule(plan: ProgramPlan) -> Iterator[int]:
    first = 0
    for _, stage in plan.stages:
        yield from (first + section for section in stage.sections.schedule)
        first += len(stage.sections.sections)


def _row(name: str, placed: Placed) -> list[Cell]:
    exact = placed.exact
    return [
        name,
        f"{placed.share:.0%}",
        1e3 * placed.policy,
        1e3 * placed.chosen,
        "" if exact.seconds is None else 1e3 * float(exact.seconds),
        f"{placed.policy / placed.chosen:.3f}",
        f"{placed.gap:.4f}",
        f"{placed.chosen / exact.bound:.4f}",
    ]


def _report(rows: list[list[Cell]]) -> Report:
    gains = [float(row[5]) for row in rows]
    gaps = [float(row[6]) for row in rows]
    return Report(
        name="placement",
        question="How good are regions that are chosen by cost?",
        method=(
            "Modelled time of one run of the schedule, on an SN40L with HBM for a share of the "
            "bytes that are alive at once. The policy has everything in HBM but what moves the "
            "fewest bytes, weights last. 'exact' is the best answer of a solver for whole numbers "
            f"within {SECONDS:g} s (HiGHS), for which gaps between addresses do not count; no "
            "answer is below 'bound', which stands in for it where it found none."
        ),
        columns=[
            *("program", "HBM", "policy, ms", "by cost, ms", "exact, ms"),
            *("policy / by cost", "by cost / exact", "by cost / bound"),
        ],
        rows=rows,
        summary=[
            (
                f"Never above the policy: {min(gains):.3f} to {max(gains):.2f} times as fast, in "
                f"{len(PROGRAMS)} programs with HBM for 30 to 90 % of their need."
            ),
            f"At most {max(gaps):.4f} of the exact solution (limit {LIMIT}).",
        ],
        plot=lambda axes: _plot(axes, rows),
    )


def _plot(axes: Axes, rows: list[list[Cell]]) -> None:
    names = list(PROGRAMS)
    for share, color in zip(SHARES, ("#4c78a8", "#f58518", "#54a24b", "#b279a2"), strict=True):
        own = [row for row in rows if row[1] == f"{share:.0%}"]
        places = [names.index(str(row[0])) for row in own]
        axes.scatter([float(row[5]) for row in own], places, s=14, color=color, label=own[0][1])
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.invert_yaxis()
    axes.legend(title="HBM of need", fontsize=7, title_fontsize=7)
    axes.set_title("Time by the default policy over time by cost", fontsize=10)
