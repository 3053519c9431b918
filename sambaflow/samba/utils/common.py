"""The driver that does what the command line says."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.errors import SambaError
from sambaflow.samba.session import session

from .argparser import was_given
from .measuring import measure_performance
from .pef_utils import get_pefmeta
from .sections import measure_sections
from .tracing import trace_graph

if TYPE_CHECKING:
    from sambaflow.samba.arguments.options import Inputs, LossIndices, Optimizers

__all__ = ["common_app_driver"]


@dataclass(frozen=True)
class _Application:
    args: Namespace
    model: nn.Module
    inputs: Inputs
    optim: Optimizers
    name: str
    init_output_grads: bool | None
    loss_indices: LossIndices
    io_host_memory: bool | None


@checked("utils.common.common_app_driver")
def common_app_driver(
    args: Namespace,
    model: nn.Module,
    inputs: Inputs,
    optim: Optimizers = None,
    name: str = "",
    app_dir: str = "",
    squeeze_bs_dim: bool = False,
    get_output_grads: bool | None = None,
    init_output_grads: bool | None = None,
    metadata: Mapping[str, object] | None = None,
    loss_indices: LossIndices = None,
    io_host_memory: bool | None = None,
) -> str | tuple[float, float] | None:
    """Do what `args.command` says with `model`, which is converted to SambaFlow already.

    compile compiles the model and its optimizers and returns the path of the PEF;
    measure-performance traces it with `args.pef` and returns samples per second and seconds per
    step; measure-sections prints a table. run and test are the application's own: nothing happens.
    `init_output_grads` and `loss_indices` are as for `trace_graph`, `io_host_memory` is as for
    `session.compile`. `app_dir`, `squeeze_bs_dim`, `get_output_grads` and `metadata` decide
    nothing.

    Raises SambaError for another command, and if fewer samples than `args.min_throughput` are done
    in a second.
    """
    if args.command not in _COMMANDS:
        raise SambaError(
            f"there is no command '{args.command}'; it is one of {', '.join(_COMMANDS)}"
        )
    app = _Application(
        args, model, inputs, optim, name, init_output_grads, loss_indices, io_host_memory
    )
    return _COMMANDS[args.command](app)


def _compile(app: _Application) -> str:
    return session.compile(
        app.model,
        app.inputs,
        app.optim,
        name=app.name,
        loss_indices=app.loss_indices,
        io_host_memory=app.io_host_memory,
        config_dict=vars(app.args),
        pef_metadata=get_pefmeta(app.args, app.model),
    )


def _measure_performance(app: _Application) -> tuple[float, float]:
    args = app.args
    _trace(app)
    found = measure_performance(
        app.model,
        app.inputs,
        args.batch_size,
        args.n_chips,
        args.inference,
        run_graph_only=args.run_graph_only,
        n_iterations=args.num_iterations,
        json=args.bench_report_json or args.json,
        compiled_stats_json=args.compiled_stats_json,
        data_parallel=args.data_parallel,
        reduce_on_rdu=args.reduce_on_rdu,
        min_duration=args.min_duration or 0.0,
    )
    least = args.min_throughput or 0.0
    if found[0] < least:
        raise SambaError(
            f"the throughput is {found[0]:.6g} samples/s, less than --min-throughput {least:g}"
        )
    return found


def _measure_sections(app: _Application) -> None:
    args = app.args
    _trace(app)
    measure_sections(
        app.model,
        app.inputs,
        num_sections=args.num_sections,
        n_iterations=args.num_iterations,
        batch_size=args.batch_size,
        json=args.bench_report_json or args.json,
        data_parallel=args.data_parallel,
        reduce_on_rdu=args.reduce_on_rdu,
        min_duration=args.min_duration or 0.0,
        inference=args.inference,
    )


def _trace(app: _Application) -> None:
    wanted = not app.args.inference if app.init_output_grads is None else app.init_output_grads
    trace_graph(
        app.model,
        app.inputs,
        None if app.args.inference else app.optim,
        init_output_grads=wanted,
        loss_indices=app.loss_indices,
        pef=app.args.pef,
        mapping=app.args.mapping if was_given(app.args, "mapping") else None,
        data_parallel_mode=app.args.data_parallel_mode,
    )


def _leave_to_the_application(app: _Application) -> None:
    """Do nothing: the application looks at `args.command` itself."""


_COMMANDS: dict[str, Callable[[_Application], str | tuple[float, float] | None]] = {
    "compile": _compile,
    "run": _leave_to_the_application,
    "test": _leave_to_the_application,
    "measure-performance": _measure_performance,
    "measure-sections": _measure_sections,
}
