"""From a model, its inputs and optimizers to a program, and from there to files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from .arguments import STEPS_OF_GRADIENTS, check_options
from .call import ForwardCall
from .errors import SambaError
from .kinds import whole
from .lazy_param import paused
from .names import model_name, samba_name
from .operands import PlainOperands
from .tensor import SambaParameter, SambaTensor, to_torch
from .tracing import Traced

if TYPE_CHECKING:
    import sambac
    from pef.program import Program

_PRESETS = {"mp0": "float32", "mp1": "mixed", "mp4": "bfloat16"}
"""What the compiler calls the presets of `--graphamp-preset`."""


LossIndices: TypeAlias = "int | Sequence[int | Sequence[int]] | None"
"""Outputs that the backward pass starts from, by number; a number may stand in a tuple."""

API = "samba"
"""Whose names the aliases in a program are."""


@dataclass(frozen=True)
class CompileRequest:
    """What an application asks of a compilation.

    `optimizers` are torch's or samba's; without any, a program that does not `train` is made, or
    one with FWD and BCKWD. `loss_indices` are the outputs the backward pass starts from, None for
    `Traced.losses`. `fusion_rules` is a file of such rules, for O1. `metadata` is kept in the
    program.
    """

    train: bool
    optimizers: tuple[torch.optim.Optimizer, ...] = ()
    loss_indices: tuple[int, ...] | None = None
    level: str = "O3"
    mapping: str = "section"
    arch: str = "sn40l"
    precision: str = "float32"
    io_host_memory: bool = False
    data_parallel: bool = False
    accumulate: bool = False
    fusion_rules: str | None = None
    metadata: Mapping[str, object] = field(default_factory=dict)


def build(model: nn.Module, call: ForwardCall, traced: Traced, wish: CompileRequest) -> Program:
    """Compile `model`, called like `call`, and give the program samba's names.

    Raises `sambac.CompileError` for what cannot be compiled.
    """
    import sambac

    ports = output_ports(model, call, traced)
    options = _options(model, call, traced, wish)
    view = _to_train if wish.train else without_values
    with view(model), torch.no_grad(), PlainOperands():
        program = sambac.compile(model, options, inputs=example_of(call))
    return _named(program, model, call, dict(zip(_names(traced), ports, strict=True)), wish)


def save(program: Program, path: Path) -> None:
    """Write the PEF and, beside it, the log of the compilation; folders are made."""
    from pef.report import File, report
    from sambac.emit import write_log

    path.parent.mkdir(parents=True, exist_ok=True)
    program.save(path)
    write_log(report(program, File(name=path.name, bytes=path.stat().st_size)), path)


@contextmanager
def without_values(*models: nn.Module) -> Iterator[None]:
    """Make the parameters and buffers of `models` shapes alone for a while.

    A program compiled meanwhile holds no weights: they come from the models that are traced. What
    is one tensor, in one model or in several, stays one.
    """
    replaced: dict[int, Tensor] = {}
    modules = dict.fromkeys(module for model in models for module in model.modules())
    tables = [
        cast(dict[str, Tensor | None], table)
        for module in modules
        for table in (module._parameters, module._buffers)
    ]
    before = [dict(table) for table in tables]
    for table in tables:
        for name, tensor in table.items():
            if tensor is not None:
                table[name] = replaced.setdefault(id(tensor), _described(tensor))
    try:
        yield
    finally:
        for table, content in zip(tables, before, strict=True):
            table.update(content)


def _described(tensor: Tensor) -> Tensor:
    """Return a tensor of the same kind without values."""
    empty = torch.empty_like(to_torch(tensor).detach(), device="meta")
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(empty, requires_grad=tensor.requires_grad)
    return empty


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
    model: nn.Module, call: ForwardCall, traced: Traced, wish: CompileRequest
) -> sambac.CompileOptions:
    shared = shared_options(wish, _memory(model, call))
    return training_options(shared, model, call, traced, wish) if wish.train else shared


def training_options(
    shared: sambac.CompileOptions,
    model: nn.Module,
    call: ForwardCall,
    traced: Traced,
    wish: CompileRequest,
) -> sambac.CompileOptions:
    """Return `shared`, the options of the whole program, with those of `model`, which trains."""
    from .optim.settings import settings_of

    paths = {id(parameter): path for path, parameter in model.named_parameters()}
    settings = settings_of(wish.optimizers, paths)
    traced.require_outputs(wish.loss_indices or ())
    ports = output_ports(model, call, traced)
    starts = traced.losses if wish.loss_indices is None else wish.loss_indices
    return replace(
        shared,
        train=True,
        optimizers=settings.optimizers,
        max_grad_norm=settings.max_grad_norm,
        backward_from=tuple(ports[number] for number in starts),
        input_grads=tuple(named.port for named in call.tensors if named.tensor.requires_grad),
        data_parallel=wish.data_parallel,
        accumulate=wish.accumulate,
    )


def shared_options(wish: CompileRequest, memory: Mapping[str, str]) -> sambac.CompileOptions:
    """Return the options that training and inference have both; `memory` are regions by name."""
    import sambac

    return sambac.CompileOptions(
        level=wish.level,  # type: ignore[arg-type]  # checked there
        mapping=wish.mapping,  # type: ignore[arg-type]
        arch=wish.arch,
        precision=wish.precision,  # type: ignore[arg-type]
        io_host_memory=wish.io_host_memory,
        memory=dict(memory),
        fusion_rules=wish.fusion_rules if wish.level == "O1" else None,
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


def output_ports(model: nn.Module, call: ForwardCall, traced: Traced) -> tuple[str, ...]:
    """Return what the compiler calls the outputs: not as inputs and parameters are called."""
    from sambac.frontend.torch.names import result_names
    from sambac.graph.names import FreshNames

    states = (*dict(model.named_parameters()), *dict(model.named_buffers()))
    fresh = FreshNames((*(named.port for named in call.tensors), *states))
    names = result_names(traced.structure)
    return tuple(fresh(names[leaf]) for leaf in traced.leaves)


def _names(traced: Traced) -> tuple[str, ...]:
    return tuple(output.sn_name for output in traced.outputs)


def _named(
    program: Program,
    model: nn.Module,
    call: ForwardCall,
    outputs: Mapping[str, str],
    wish: CompileRequest,
) -> Program:
    """Return `program` with samba's names as aliases and the application's metadata."""
    from pef.program import Alias

    graph = program.graphs[0]
    ports = {port.name: port.symbol for port in (*graph.inputs, *graph.outputs)}
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
    facts = json.loads(program.producer.options)
    facts["application"] = {
        **stored(wish.metadata),
        "model": model_name(model),
        "unused_inputs": unused,
    }
    options = json.dumps(facts, sort_keys=True)
    return replace(
        program,
        aliases=(*program.aliases, *aliases),
        producer=replace(program.producer, options=options),
    )


def stored(metadata: Mapping[str, object]) -> dict[str, object]:
    """Return metadata as JSON holds it."""
    from .utils.pef_utils import plain

    return {str(name): plain(value) for name, value in metadata.items()}


def loss_numbers(loss_indices: LossIndices) -> tuple[int, ...] | None:
    """Return `loss_indices` as numbers of outputs; each may be a number or a tuple of one."""
    if loss_indices is None:
        return None
    given = loss_indices if isinstance(loss_indices, (list, tuple)) else (loss_indices,)
    try:
        return tuple(whole(item[-1] if isinstance(item, (list, tuple)) else item) for item in given)
    except (TypeError, IndexError) as error:
        raise SambaError(
            f"loss_indices is {loss_indices!r}; give numbers of outputs, such as [0]"
        ) from error


def _precision(preset: object) -> str:
    """Return the precision that `preset` stands for; without one it is that of the model."""
    if not preset:
        return "float32"
    if preset not in _PRESETS:
        raise SambaError(f"graphamp_preset is {preset!r}; choose {', '.join(_PRESETS)}")
    return _PRESETS[str(preset)]


def _accumulates(config: Mapping[str, object]) -> bool:
    """Return whether gradients add up over runs, until ZEROGRAD clears them."""
    steps = max(
        (n for n in map(config.get, STEPS_OF_GRADIENTS) if isinstance(n, int)),
        default=1,
    )
    return bool(config.get("gradient_accumulation")) or steps > 1


def _arch(asked: object) -> str:
    """Return the chip to compile for: names of applications stand for descriptions there are."""
    from .utils.app_options import ARCHES

    return ARCHES.get(str(asked), str(asked)) if asked else "sn40l"


def wish_of(
    config: Mapping[str, object],
    optimizers: tuple[torch.optim.Optimizer, ...],
    loss_indices: LossIndices,
    metadata: Mapping[str, object],
) -> CompileRequest:
    """Return what the options of a command line, `config`, and a program ask of a compilation.

    A program trains unless it is for inference. Without optimizers it trains, that is, it has a
    backward pass, only where the options say that it is not for inference.
    """
    check_options(config)
    inference = config.get("inference", not optimizers)
    return CompileRequest(
        train=not inference,
        optimizers=optimizers,
        loss_indices=loss_numbers(loss_indices),
        level=str(config.get("optim_level") or "o3").upper(),
        mapping=str(config.get("mapping") or "section"),
        arch=_arch(config.get("arch")),
        precision=_precision(config.get("graphamp_preset")),
        data_parallel=bool(config.get("data_parallel")),
        accumulate=_accumulates(config),
        fusion_rules=str(config["optimization_rules"])
        if config.get("optimization_rules")
        else None,
        metadata=metadata,
    )
