"""A model traced without computing: the names, shapes and types of what it takes and returns.

The output of an operator is called `<model>__<path of the module>__<operator>__outputs__<number>`,
where the operator is the class of the module in small letters if that is one of `torch.nn` without
modules inside, else the name of the torch function. A second operator of the same name gets the
suffix `_1`, and so on in the order of execution.
"""

from __future__ import annotations

import logging
import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch._export.utils import _compiling_state_context
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from pef.foreign import why
from pef.objects import ObjectSnapshot
from pef.reached_code import is_of
from pef.warned import warn
from sambaflow.samba.errors import SambaError
from sambaflow.samba.names import model_name
from sambaflow.samba.tensors.operands import PlainOperands
from sambaflow.samba.tensors.symbolic import operator_name
from sambaflow.samba.tensors.tensor import SambaTensor, to_torch

from .call import ForwardCall
from .looks import STAND_INS, without_looks
from .module_settings import Settings, noting
from .onnx_graph import OnnxStandIn

_LOSSES = frozenset(
    {"cross_entropy", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div"}
)
"""Loss functions of torch whose names do not end with `_loss`."""


_NEEDS_VALUES = (DataDependentOutputException, DynamicOutputShapeException)
_NO_ARRAY = ".numpy() is not supported for tensor subclasses"
"""What is raised where values are asked for; the last one is a RuntimeError of this text."""


@dataclass(frozen=True)
class Traced:
    """What a model returns: a description of each tensor, in order, under its name."""

    name: str
    outputs: tuple[SambaTensor, ...]
    structure: pytree.TreeSpec
    leaves: tuple[int, ...]
    """The leaves of `structure` that are the outputs; others are numbers or None."""
    penalties: tuple[int, ...] = ()
    """The numbers of the outputs that a loss function of torch had a part in."""
    settings: Settings = field(default_factory=dict)
    """What of modules, beside tensors, the outputs depend on."""

    def require_outputs(self, numbers: Iterable[int]) -> None:
        """Raise `SambaError` for `numbers` in `loss_indices` that are of no output."""
        wrong = [str(number) for number in numbers if not 0 <= number < len(self.outputs)]
        if wrong:
            raise SambaError(
                f"loss_indices has {', '.join(wrong)}, and the model has {len(self.outputs)} "
                f"outputs; count them from 0"
            )

    @property
    def losses(self) -> tuple[int, ...]:
        """The numbers of the outputs that are minimised where nobody says which.

        They are those that are single numbers; if none is, those that come from a loss function,
        such as a loss for every token; else all with gradients.
        """
        numbers = tuple(i for i in self.differentiable if self.outputs[i].numel() == 1)
        return numbers or self._differentiable_penalties or self.differentiable

    @property
    def _differentiable_penalties(self) -> tuple[int, ...]:
        return tuple(i for i in self.differentiable if i in self.penalties)

    @property
    def differentiable(self) -> tuple[int, ...]:
        """The numbers of the outputs that depend on something with a gradient."""
        return tuple(i for i, output in enumerate(self.outputs) if output.requires_grad)


def trace(model: nn.Module, call: ForwardCall, prefix: str = "", *, infers: bool = False) -> Traced:
    """Follow `model` through `call` and name its outputs; nothing is computed, nothing changed.

    `prefix` comes before every name. A model that `infers` has outputs without gradients, unless
    an input has one; its forward may take some inside all the same. Raises what torch would raise
    for shapes that do not fit, and `SambaError` for control flow that depends on values.
    """
    name = prefix + model_name(model)
    if isinstance(model, OnnxStandIn):
        outputs = model.outputs_of({named.port: named.tensor for named in call.tensors})
        structure = pytree.tree_structure(outputs)
        return Traced(name, outputs, structure, tuple(range(len(outputs))), ())
    try:
        with _unlogged():
            traced = copy_context().run(_traced, model, call, name, infers)
    except Exception as error:
        if isinstance(error, _NEEDS_VALUES) or _NO_ARRAY in str(error):
            raise SambaError(
                f"{type(model).__name__} cannot be traced: at {_place(error)} its forward depends "
                f"on the values of tensors. One graph serves all values: choose with torch.where "
                f"instead of `if`, keep numbers in tensors (no .item(), no .numpy()), and results "
                f"of one shape"
            ) from error
        _run_for_its_error(model, call)
        raise
    if infers and not any(named.tensor.requires_grad for named in call.tensors):
        for output in traced.outputs:
            output.requires_grad_(False)
    return traced


def _place(error: BaseException) -> str:
    """Return the line of the model at which `error` was raised: the last that is not torch's."""
    inside = (os.path.dirname(torch.__file__), os.path.dirname(os.path.dirname(__file__)))
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(inside)]
    frame = own[-1] if own else frames[-1]
    return f"{os.path.basename(frame.filename)}:{frame.lineno} (`{frame.line}`)"


@contextmanager
def _unlogged() -> Iterator[None]:
    """Keep torch from logging, with a traceback, the errors that are raised anyway."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


@contextmanager
def _as_exported() -> Iterator[None]:
    """Let models that ask whether they are compiled take the way that the exporter will see."""
    with _compiling_state_context():
        yield


@contextmanager
def _as_found(model: nn.Module) -> Iterator[ObjectSnapshot]:
    """Let `model` have what it had when a block is over: it may keep tensors from call to call.

    What a block leaves behind are tensors without values.
    """
    memory = ObjectSnapshot(model.modules(), lambda value: is_of(value, Tensor))
    try:
        yield memory
    finally:
        memory.restore()


def _tell_what_is_kept(name: str, memory: ObjectSnapshot, recorder: _Recorder) -> None:
    """Warn of tensors that a call leaves behind, and that another call would want others of.

    Those in attributes of modules are refused by the compiler.
    """
    kept = [
        change.path
        for change in memory.changes()
        if not change.standing.direct
        and any(map(recorder.varies, memory.new_tensors(change.value)))
    ]
    if kept:
        warn(
            f"{name} keeps {', '.join(kept)} from one call of forward to the next, with values "
            f"that depend on its inputs; in a PEF every run begins like the first call"
        )


def _traced(model: nn.Module, call: ForwardCall, name: str, infers: bool) -> Traced:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes: dict[int, Tensor] = {}

    def fake(tensor: Tensor) -> Tensor:
        if id(tensor) not in fakes:
            fakes[id(tensor)] = _faked(mode, to_torch(tensor).detach())
            frozen = infers and isinstance(tensor, nn.Parameter) and tensor.is_floating_point()
            fakes[id(tensor)].requires_grad_(tensor.requires_grad or frozen)
        return fakes[id(tensor)]

    replaced = {path: fake(tensor) for path, tensor in _states(model)}
    args, kwargs = pytree.tree_map_only(Tensor, fake, (call.args, dict(call.kwargs)))
    recorder = _Recorder(name, model, (args, kwargs))
    with _as_found(model) as memory:
        alone = (torch.enable_grad(), without_looks(), mode, recorder.watching())
        with _as_exported(), noting(model) as settings, ExitStack() as stack:
            for context in (*alone, PlainOperands(), recorder):
                stack.enter_context(context)
            result = torch.func.functional_call(model, replaced, args, kwargs, tie_weights=False)
        _tell_what_is_kept(type(model).__name__, memory, recorder)
    leaves, structure = pytree.tree_flatten(result)
    tensors = {i: leaf for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)}
    described: dict[int, SambaTensor] = {}  # what is returned twice is one tensor
    for number, leaf in enumerate(tensors.values()):
        described.setdefault(id(leaf), _described(leaf, recorder.name_of(leaf, number)))
    outputs = tuple(described[id(leaf)] for leaf in tensors.values())
    penalties = tuple(i for i, leaf in enumerate(tensors.values()) if recorder.penalises(leaf))
    return Traced(name, outputs, structure, tuple(tensors), penalties, settings)


def _states(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield parameters and buffers, tied ones too, by path; a module with two paths has one here.

    torch would tie the others itself, and leave a module that it meets twice with the stand-ins.
    """
    for path, module in model.named_modules():
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None:
                yield f"{path}.{name}" if path else name, tensor


def _faked(mode: FakeTensorMode, tensor: Tensor) -> Tensor:
    """Return a stand-in for `tensor` that has no values; it is on the host in any case."""
    if not tensor.is_meta:
        return mode.from_tensor(tensor)
    with mode:
        return torch.empty(tensor.shape, dtype=tensor.dtype)


def _described(leaf: Tensor, name: str) -> SambaTensor:
    return SambaTensor(
        shape=leaf.shape, dtype=leaf.dtype, name=name, requires_grad=leaf.requires_grad
    )


def _run_for_its_error(model: nn.Module, call: ForwardCall) -> None:
    """Compute `call`, so that what is wrong with it is said in torch's usual words.

    Buffers, random numbers and what else `model` keeps stay as they are.
    """
    args, kwargs = pytree.tree_map_only(Tensor, to_torch, (call.args, dict(call.kwargs)))
    if all(
        not tensor.is_meta
        for tensor in (*model.parameters(), *pytree.tree_leaves(args))
        if isinstance(tensor, Tensor)
    ):
        copies: dict[int, Tensor] = {}
        buffers = {
            path: copies.setdefault(id(tensor), tensor.clone())
            for path, tensor in _states(model)
            if not isinstance(tensor, nn.Parameter)
        }
        with torch.enable_grad(), torch.random.fork_rng(devices=()), _as_found(model):
            torch.func.functional_call(model, buffers, args, kwargs, tie_weights=False)


def torch_says(model: nn.Module, call: ForwardCall) -> str:
    """Return what torch says of shapes and types in `call` that do not fit, nothing if they do.

    Shapes show in tracing, types only where something is computed.
    """
    try:
        trace(model, call)
        _run_for_its_error(model, call)
    except SambaError:  # of values, not of shapes
        return ""
    except Exception as error:  # the model's own code runs here, and may raise anything
        return why(error, lambda text: text.strip().partition("\n")[0])
    return ""


class _Recorder(TorchFunctionMode):
    """Gives each tensor that a torch function returns the name of the operator.

    It also follows which tensors come from a loss function, and which from what the model is given.
    """

    def __init__(self, name: str, model: nn.Module, given: object) -> None:
        super().__init__()
        self._name = name
        self._paths = {id(module): path for path, module in model.named_modules()}
        self._stack: list[nn.Module] = []
        self._counts: Counter[str] = Counter()
        self._names: dict[int, str] = {}
        self._kept: list[object] = []
        self._penalties: set[int] = set()
        self._varying = _tensor_ids(given)

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run `func` and name its results, unless a module of torch is named as a whole."""
        result = STAND_INS.get(func, func)(*args, **(kwargs or {}))
        self._follow(func, (args, kwargs), result)
        if not (self._stack and _is_operator(self._stack[-1])):
            self._give(result, operator_name(func))
        return result

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Follow which module is at work."""
        hooks = (
            nn.modules.module.register_module_forward_pre_hook(self._enter),
            nn.modules.module.register_module_forward_hook(self._leave, always_call=True),
        )
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def name_of(self, tensor: Tensor, number: int) -> str:
        """Return the name of output `number`; one that no operator made is a copy."""
        return self._names.get(id(tensor)) or f"{self._name}__identity__outputs__{number}"

    def penalises(self, tensor: Tensor) -> bool:
        """Return whether a loss function made `tensor`, or something it was computed from."""
        return id(tensor) in self._penalties

    def varies(self, tensor: object) -> bool:
        """Return whether `tensor` was computed from what the model is called with."""
        return id(tensor) in self._varying

    def _follow(self, func: Callable[..., object], given: object, result: object) -> None:
        name = operator_name(func)
        sources, results = _tensor_ids(given), _tensor_ids(result)
        self._kept.append(result)  # so that no other tensor gets its id
        if name.endswith("_loss") or name in _LOSSES or not sources.isdisjoint(self._penalties):
            self._penalties |= results
        if not sources.isdisjoint(self._varying):
            self._varying |= results

    def _enter(self, module: nn.Module, args: object) -> None:
        self._stack.append(module)

    def _leave(self, module: nn.Module, args: object, result: object) -> None:
        if _is_operator(module):
            self._give(result, type(module).__name__.lower())
        self._stack.pop()

    def _give(self, result: object, operator: str) -> None:
        tensors = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]
        if not tensors or not operator:
            return
        path = self._paths.get(id(self._stack[-1]), "") if self._stack else ""
        stem = "__".join(part for part in (self._name, *path.split("."), operator) if part)
        count = self._counts[stem]
        self._counts[stem] += 1
        stem = f"{stem}_{count}" if count else stem
        self._kept.append(result)
        for number, tensor in enumerate(tensors):
            self._names[id(tensor)] = f"{stem}__outputs__{number}"


def _tensor_ids(value: object) -> set[int]:
    return {id(leaf) for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)}


def _is_operator(module: nn.Module) -> bool:
    """Return whether `module` is one of torch's own that has no modules inside."""
    return type(module).__module__.startswith("torch.nn.") and not module._modules
