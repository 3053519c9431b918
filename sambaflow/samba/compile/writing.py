"""What `compile` and `compile_multigraph` of a session do: from traced models to files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import nn

from pef.program import Program
from pef.report import File, report
from sambac.emit import write_log
from sambaflow.samba.trace.call import ForwardCall
from sambaflow.samba.trace.traced_graph import TracedGraph
from sambaflow.samba.trace.tracing import Traced

from .multigraph import build_graphs
from .regions import build_in_regions
from .requests import CompileRequest, request_of


def write_model(
    model: nn.Module, call: ForwardCall, traced: Traced, request: CompileRequest, path: Path
) -> str:
    """Compile a traced model into the file `path`, tell where it is, and return that.

    Raises `SambaError` for `loss_indices` that are no outputs and for regions that cannot be
    shared, `sambac.CompileError` for what cannot be compiled.
    """
    traced.require_outputs(request.loss_indices or ())
    return _saved(build_in_regions(model, call, traced, request), path)


def write_graphs(
    graphs: Sequence[TracedGraph],
    config: Mapping[str, object],
    metadata: Mapping[str, object],
    path: Path,
) -> str:
    """Compile traced graphs into the file `path`, tell where it is, and return that.

    `config` are the options of the command line; those of `graphs` that have optimizers train.
    """
    request = request_of({**config, "inference": True}, (), None, metadata)
    return _saved(build_graphs(graphs, request), path)


def _saved(program: Program, path: Path) -> str:
    """Write the PEF and, beside it, the log of the compilation; folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    program.save(path)
    write_log(report(program, File(name=path.name, bytes=path.stat().st_size)), path)
    print(f"PEF file {path.resolve()} created")
    return str(path)
