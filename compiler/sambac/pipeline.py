"""The way of a model through the compiler: every stage, in order, on one page.

    frontend -> legalize -> simplify -> select kernels
             -> plan fusion -> plan sections -> estimate -> plan memory -> emit

Each pass leaves a graph in legal form, which is verified after it; each plan is verified by a
checker that shares no code with its planner. Data flows one way: no stage looks ahead.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import onnx
import onnx_ir as ir

import pef
from pef.program import Producer, Program, RegionKind
from pef.wording import listed

from .arch import load_arch
from .emit import Plans, emit
from .errors import InternalError
from .frontend import Source, load
from .knobs import dump_folder
from .options import CompileOptions
from .passes.legalize import LEGALIZE
from .passes.runner import run_passes
from .passes.select_kernels import SELECT_KERNELS
from .passes.simplify import SIMPLIFY
from .planning.borders import borders_of
from .planning.check_fusion import check_fusion
from .planning.check_memory import check_memory
from .planning.check_sections import check_sections
from .planning.estimate import estimate
from .planning.from_model import view_of
from .planning.fusion import plan_fusion
from .planning.lifetimes import memory_requests, symbol_lifetimes
from .planning.memory import plan_memory
from .planning.sections import Wish, plan_sections

Progress = Callable[[str], None]
_LIBRARIES = ("numpy", "onnx", "onnx-ir", "onnxruntime", "networkx")


def compile(
    model: str | os.PathLike[str] | onnx.ModelProto | ir.Model,
    options: CompileOptions | None = None,
    progress: Progress | None = None,
) -> Program:
    """Compile `model` into a program that `sambarun.load` runs and `Program.save` stores.

    `progress` is called with the name of each stage as it begins. Raises `CompileError` for
    what the user can mend, `InternalError` where the compiler broke its own rules.
    """
    chosen = options or CompileOptions()
    report = progress or (lambda stage: None)

    report("load")
    source = load(model, chosen)
    graph = source.model
    for stage, passes, legal_from in (
        ("legalize", LEGALIZE, len(LEGALIZE) - 1),
        ("simplify", SIMPLIFY, 0),
        ("select kernels", SELECT_KERNELS, 0),
    ):
        report(stage)
        run_passes(graph, passes, legal_from=legal_from, dump=dump_folder())
    plans = _plan(graph, chosen, report)
    report("emit")
    producer = _producer(source, chosen)
    program = emit(graph, source.signature, plans, producer, load_arch(chosen.arch).name)
    _require("emit", pef.check_program(program))
    return program


def _plan(model: ir.Model, options: CompileOptions, report: Progress) -> Plans:
    """Run the planners in order, each followed by its checker."""
    arch = load_arch(options.arch)
    view = view_of(model, clone_views=options.level == "O0")

    report("plan fusion")
    fusion = plan_fusion(
        view, arch, options.level, options.fusion_rules, at_least=options.sections or 0
    )
    _require("plan fusion", check_fusion(view, fusion))

    report("plan sections")
    wish = Wish(options.level, options.mapping, options.sections)
    sections = plan_sections(view, fusion, arch, wish)
    borders = borders_of(view, fusion, sections)
    _require("plan sections", check_sections(view, fusion, sections, borders, arch))

    report("estimate")
    costs = estimate(view, fusion, sections, borders, arch)

    report("plan memory")
    calls = len(sections.schedule)
    lifetimes = symbol_lifetimes(view, borders, sections.schedule)
    io_region = RegionKind.HOST if options.io_host_memory else None
    requests = memory_requests(view, lifetimes, calls, io_region=io_region)
    memory = plan_memory(requests, arch.capacities)
    _require("plan memory", check_memory(requests, memory, arch.capacities))
    return Plans(view, fusion, sections, borders, lifetimes, memory, costs)


def _require(stage: str, problems: Sequence[str]) -> None:
    if problems:
        raise InternalError(f"{stage} made a plan that its checker rejects: {listed(problems)}")


def _producer(source: Source, options: CompileOptions) -> Producer:
    return Producer(
        tool="sambac",
        version=version("sambaflow"),
        options=json.dumps(_option_facts(options), sort_keys=True),
        source=source.name,
        source_hash=source.sha256,
        libraries=tuple((name, version(name)) for name in _LIBRARIES),
    )


def _option_facts(options: CompileOptions) -> dict[str, object]:
    """Return the options as plain data, without anything that names a folder of this host."""
    return {
        "level": options.level,
        "mapping": options.mapping,
        "arch": Path(options.arch).name,
        "inputs": {
            name: {"shape": list(spec.shape), "dtype": spec.dtype}
            for name, spec in options.inputs.items()
        },
        "io_host_memory": options.io_host_memory,
        "fusion_rules": Path(options.fusion_rules).name if options.fusion_rules else None,
        "sections": options.sections,
    }
