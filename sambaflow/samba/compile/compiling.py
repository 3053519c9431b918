"""From a model, its inputs and optimizers to a program, and from there to files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import sambac
from pef.program import Alias, Program
from sambaflow.samba.lazy_param import paused
from sambaflow.samba.names import model_name, samba_name
from sambaflow.samba.tensors.operands import PlainOperands
from sambaflow.samba.tensors.tensor import SambaParameter, SambaTensor, to_torch
from sambaflow.samba.trace.call import ForwardCall
from sambaflow.samba.trace.tracing import Traced
from sambahost.models import without_values

from .application import API, SETTINGS, plain, stored, with_application
from .graph_names import output_ports
from .requests import CompileRequest, settings_of


def build(model: nn.Module, call: ForwardCall, traced: Traced, request: CompileRequest) -> Program:
    """Compile `model`, called like `call`, and give the program samba's names.

    Raises `sambac.CompileError` for what cannot be compiled.
    """
    ports = output_ports(model, call, traced)
    options = _options(model, call, traced, request)
    view = _to_train if request.train else without_values
    with view(model), torch.no_grad(), PlainOperands():
        program = sambac.compile(model, options, inputs=example_of(call))
    return _named(program, model, call, (traced, ports), request)


@contextmanager
def _to_train(model: nn.Module) -> Iterator[None]:
    """Make the parameters of `model` plain for a while, in which none becomes lazy."""
    with paused(), plain_parameters(model):
        yield


@contextmanager
def plain_parameters(model: nn.Module) -> Iterator[None]:
    """Make the parameters of `model` torch's own for a while: the compiler knows only those."""
    changed = [item for item in model.parameters() if isinstance(item, SambaParameter)]
    for parameter in changed:
        parameter.__class__ = nn.Parameter  # type: ignore[assignment]
    try:
        yield
    finally:
        for parameter in changed:
            parameter.__class__ = SambaParameter


def _options(
    model: nn.Module, call: ForwardCall, traced: Traced, request: CompileRequest
) -> sambac.CompileOptions:
    shared = replace(request.options, memory=_memory(model, call))
    return training_options(shared, model, call, traced, request) if request.train else shared


def training_options(
    shared: sambac.CompileOptions,
    model: nn.Module,
    call: ForwardCall,
    traced: Traced,
    request: CompileRequest,
) -> sambac.CompileOptions:
    """Return `shared`, the options of the whole program, with those of `model`, which trains."""
    paths = {id(parameter): path for path, parameter in model.named_parameters()}
    settings = settings_of(request.optimizers, paths)
    traced.require_outputs(request.loss_indices or ())
    ports = output_ports(model, call, traced)
    starts = traced.losses if request.loss_indices is None else request.loss_indices
    return replace(
        shared,
        train=True,
        optimizers=settings.optimizers,
        max_grad_norm=settings.max_grad_norm,
        backward_from=tuple(ports[number] for number in starts),
        input_grads=tuple(named.port for named in call.tensors if named.tensor.requires_grad),
        data_parallel=request.data_parallel,
        accumulate=request.accumulate,
    )


def _memory(model: nn.Module, call: ForwardCall) -> dict[str, str]:
    """Return the regions that tensors ask for, by the compiler's names."""
    tensors = {
        **dict(model.named_parameters()),
        **{named.port: named.tensor for named in call.tensors},
    }
    return {
        name: "HOST" if tensor.host_memory else str(tensor.mem_type).upper()
        for name, tensor in tensors.items()
        if isinstance(tensor, SambaTensor) and (tensor.host_memory or tensor.mem_type)
    }


def example_of(call: ForwardCall) -> tuple[object, ...] | dict[str, object]:
    """Return the arguments as plain tensors; those without data as zeros."""

    def plain(tensor: Tensor) -> Tensor:
        found = to_torch(tensor).detach()
        return torch.zeros(found.shape, dtype=found.dtype) if found.is_meta else found

    args, kwargs = pytree.tree_map_only(Tensor, plain, (call.args, dict(call.kwargs)))
    return kwargs if kwargs else tuple(args)


def _names(traced: Traced) -> tuple[str, ...]:
    return tuple(output.sn_name for output in traced.outputs)


def _named(
    program: Program,
    model: nn.Module,
    call: ForwardCall,
    returned: tuple[Traced, tuple[str, ...]],
    request: CompileRequest,
) -> Program:
    """Return `program` with samba's names as aliases and the application's metadata.

    It has `returned`: what was traced, by ports of these names.
    """
    graph = program.graphs[0]
    ports = {port.name: port.symbol for port in (*graph.inputs, *graph.outputs)}
    traced, names = returned
    outputs = dict(zip(_names(traced), names, strict=True))
    symbols = {symbol.name: index for index, symbol in enumerate(program.symbols)}
    states = [*dict(model.named_parameters()), *dict(model.named_buffers())]
    wanted = {
        **{samba_name(model_name(model), path): symbols.get(path) for path in states},
        **{named.tensor.sn_name: ports.get(named.port) for named in call.tensors},
        **{name: ports.get(port) for name, port in outputs.items()},
    }
    taken = {alias.name for alias in program.aliases}
    aliases = [
        Alias(name, symbol, API)
        for name, symbol in sorted(wanted.items())
        if symbol is not None and name not in taken
    ]
    unused = [named.tensor.sn_name for named in call.tensors if named.port not in ports]
    facts = {
        **stored(request.metadata),
        "model": model_name(model),
        SETTINGS: plain({"": traced.settings}),
        "unused_inputs": unused,
    }
    return with_application(replace(program, aliases=(*program.aliases, *aliases)), facts)
