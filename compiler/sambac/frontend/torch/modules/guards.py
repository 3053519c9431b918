"""What torch.export loses without a word: gradients that a module makes itself.

A recording has the operators of `forward` alone. A hook on a tensor, or a derivative taken inside
`forward`, would be missing from it, and gradients wrong. So would no_grad inside autocast, which
torch.export takes for two regions with gradients, and inference_mode, which it forgets. Nor does it
say that random numbers begin anew.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import get_ident
from types import FrameType

import torch
from torch import fx, random
from torch._subclasses.fake_tensor import FakeTensor
from torch.jit._trace import TopLevelTracedModule
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from pef.wording import listed
from sambac.errors import CompileError
from sambac.frontend.torch.patching import replaced

from .inputs import Example, module_name

ADVICE = "write it with operators that torch differentiates itself"
"""What to do about gradients that cannot be recorded."""

# Where `no_grad` turns gradients off, and what calls it for functions that it decorates.
_GRAD_MODE, _DECORATORS = "torch.autograd.grad_mode", "torch.utils._contextlib"

_QUANTIZED = (
    "torch.ao.nn.quantized",
    "torch.ao.nn.intrinsic.quantized",
    "torch.ao.nn.sparse.quantized",
)
"""Where PyTorch has its quantised layers; those that only pretend (qat) are plain modules."""

_UNQUANTIZED = ("FloatFunctional", "FXFloatFunctional")
"""Modules that lie there too, and compute on floats until a converter takes them out."""

# Where it happens -> what to tell the user.
_LOST: tuple[tuple[object, str, str], ...] = (
    (torch.Tensor, "register_hook", "changes gradients with a hook on a tensor"),
    (torch.autograd, "backward", "takes derivatives inside forward (autograd.backward)"),
)
_UNRECORDED = "fake tensor in the exported program"
"""What PyTorch says of derivatives that leave the recording."""

_SEEDS = ("manual_seed", "seed", "set_rng_state", "fork_rng")
"""What sets the state of PyTorch's random numbers."""


@contextmanager
def without_seeds() -> Iterator[None]:
    """Raise `CompileError` where the user's code sets the state of PyTorch's random numbers."""
    with ExitStack() as stack:
        for name in _SEEDS:
            refuse = _refuse_seeds(name, getattr(random, name))
            for owner in (torch, random):
                if name in vars(owner):
                    stack.enter_context(replaced(owner, name, refuse))
        yield


def _refuse_seeds(name: str, before: Callable[..., object]) -> Callable[..., object]:
    here = get_ident()

    def refuse(*args: object, **kwargs: object) -> object:
        caller = str(sys._getframe(1).f_globals.get("__name__"))
        if get_ident() != here or caller.startswith("torch."):
            return before(*args, **kwargs)
        raise CompileError(
            f"forward calls torch.{name}, which cannot be recorded; runs of a program are given "
            "their seeds, and what is drawn once belongs into __init__"
        )

    return refuse


@contextmanager
def refusing_hooks(name: str) -> Iterator[None]:
    """Raise `CompileError` where the module called `name` makes gradients itself, while it runs.

    What other threads do meanwhile is theirs: one may train while another compiles.
    """
    with ExitStack() as stack:
        for owner, attribute, what in _LOST:
            message = f"{name} {what}, which cannot be recorded; {ADVICE}"
            refuse = _refuse(message, getattr(owner, attribute))
            stack.enter_context(replaced(owner, attribute, refuse))
        start = _outside_autocast(torch.set_grad_enabled.__init__, name)
        stack.enter_context(replaced(torch.set_grad_enabled, "__init__", start))
        enter = _without_inference(torch.inference_mode.__enter__, name)
        stack.enter_context(replaced(torch.inference_mode, "__enter__", enter))
        yield


@contextmanager
def keeping_classes(name: str) -> Iterator[None]:
    """Raise `CompileError` where a tensor is to be of another class: the process would end."""
    here = get_ident()

    def assign(tensor: FakeTensor, attribute: str, value: object) -> None:
        if attribute == "__class__" and get_ident() == here:
            raise CompileError(
                f"{name} assigns to __class__ of a tensor, which cannot be recorded; do it in "
                "__init__"
            )
        torch.Tensor.__setattr__(tensor, attribute, value)

    with replaced(FakeTensor, "__setattr__", assign):
        yield


@contextmanager
def naming_derivatives(name: str) -> Iterator[None]:
    """Say that the module called `name` takes derivatives, where that is why recording it fails.

    Some can be recorded as the operators that they run; `CompileError` is raised for the others.
    """
    taken: list[str] = []
    with ExitStack() as stack:
        for owner, attribute, what in _LOST[1:]:
            noted = _noted(taken, what, getattr(owner, attribute))
            stack.enter_context(replaced(owner, attribute, noted))
        try:
            yield
        except RuntimeError as error:
            if not taken or _UNRECORDED not in str(error):
                raise
            raise CompileError(
                f"{name} {taken[0]}, which cannot be recorded; write their formulas into forward"
            ) from None


def _noted(taken: list[str], what: str, before: Callable[..., object]) -> Callable[..., object]:
    """Return `before`, which adds `what` to `taken` where this thread calls it."""
    here = get_ident()

    def noted(*args: object, **kwargs: object) -> object:
        if get_ident() == here:
            taken.append(what)
        return before(*args, **kwargs)

    return noted


def require_no_hooks(module: torch.nn.Module) -> None:
    """Raise `CompileError` for hooks on the gradients of modules or parameters."""
    hooked = [
        name or module_name(module)
        for name, part in module.named_modules()
        if part._backward_hooks or part._backward_pre_hooks
    ]
    hooked += [
        name
        for name, parameter in module.named_parameters()
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks
    ]
    if hooked:
        raise CompileError(
            f"the gradients of {listed(hooked, separator=', ')} have hooks, which cannot be "
            "recorded; remove them"
        )


def require_python(module: torch.nn.Module) -> None:
    """Raise `CompileError` for modules without Python that could be recorded.

    TorchScript has code of its own; what was traced can be recorded inside of other modules, but
    not by itself. Quantised layers keep packed weights in C++. torch.export takes the graph of a
    GraphModule alone, without its hooks.
    """
    if isinstance(module, fx.GraphModule) and (module._forward_hooks or module._forward_pre_hooks):
        raise CompileError(
            f"{module_name(module)} is a graph with hooks, which would be lost; compile a module "
            "that calls it, or one without hooks"
        )
    called = type(module).__call__
    if not str(called.__module__).startswith("torch."):
        raise CompileError(
            f"{module_name(module)} has a __call__ of its own, which is not recorded; do in "
            "forward what it does"
        )
    for path, part in module.named_modules():
        name = path or type(part).__name__
        inside = path != "" and _is_traced(module, path)
        if isinstance(part, torch.jit.ScriptModule) and not inside:
            raise CompileError(
                f"{name} was made by torch.jit.trace or torch.jit.script, whose code cannot be "
                "recorded; give the torch.nn.Module that it was made from"
            )
        kind = type(part)
        if kind.__module__.startswith(_QUANTIZED) and kind.__name__ not in _UNQUANTIZED:
            raise CompileError(
                f"{name} is a quantised layer of PyTorch ({kind.__name__}), whose weights "
                "cannot be read; give the module as it was before it was quantised"
            )


def require_made(module: torch.nn.Module) -> None:
    """Raise `CompileError` for parameters and buffers that a first call has yet to make."""
    states = (*module.named_parameters(), *module.named_buffers())
    lazy = [name for name, tensor in states if is_lazy(tensor)]
    if lazy:
        raise CompileError(
            f"{module_name(module)} has {listed(lazy, separator=', ')} of no shape yet, which "
            "the first call makes; call it once on example inputs, then compile it"
        )


def require_dense(module: torch.nn.Module, example: Example) -> None:
    """Raise `CompileError` for parameters, buffers and inputs that are sparse tensors."""
    states = (*module.named_parameters(), *module.named_buffers())
    found = [name for name, tensor in states if tensor.layout != torch.strided]
    given = pytree.tree_leaves((example.args, dict(example.kwargs)))
    if any(isinstance(item, torch.Tensor) and item.layout != torch.strided for item in given):
        found.append("inputs")
    if found:
        raise CompileError(
            f"{module_name(module)} has sparse tensors ({listed(found, separator=', ')}), which "
            "have no ONNX form; make them dense with to_dense()"
        )


def _is_traced(module: torch.nn.Module, path: str) -> bool:
    """Tell whether the submodule at `path` was traced, or lies in one that was."""
    steps = path.split(".")
    paths = (".".join(steps[:length]) for length in range(1, len(steps) + 1))
    return any(isinstance(module.get_submodule(at), TopLevelTracedModule) for at in paths)


def _refuse(message: str, before: Callable[..., object]) -> Callable[..., object]:
    here = get_ident()

    def refuse(*args: object, **kwargs: object) -> object:
        if get_ident() != here:
            return before(*args, **kwargs)
        raise CompileError(message)

    return refuse


def _outside_autocast(
    start: Callable[[torch.set_grad_enabled, bool], None], name: str
) -> Callable[[torch.set_grad_enabled, bool], None]:
    """Return `start`, which refuses to turn gradients off inside autocast for the user's code."""
    here = get_ident()

    def checked(context: torch.set_grad_enabled, mode: bool) -> None:
        if get_ident() == here and not mode and _in_autocast() and _is_users(sys._getframe(1)):
            raise CompileError(
                f"{name} turns gradients off inside torch.autocast, which cannot be recorded; put "
                "autocast inside no_grad, or use detach()"
            )
        start(context, mode)

    return checked


def _in_autocast() -> bool:
    """Tell whether an autocast is open, be it one that is switched off."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting() > 0


def _is_users(frame: FrameType | None) -> bool:
    """Tell whether the user's code wants what happens in `frame`, not the exporter."""
    while frame is not None and frame.f_globals.get("__name__") == _GRAD_MODE:
        frame = frame.f_back
    caller = "" if frame is None else str(frame.f_globals.get("__name__"))
    return not caller.startswith("torch.") or caller == _DECORATORS


def _without_inference(
    enter: Callable[[torch.inference_mode], None], name: str
) -> Callable[[torch.inference_mode], None]:
    """Return `enter`, which refuses to turn gradients off."""
    here = get_ident()

    def checked(context: torch.inference_mode) -> None:
        if get_ident() == here and context.mode:
            raise CompileError(
                f"{name} uses torch.inference_mode, which cannot be recorded; use torch.no_grad"
            )
        enter(context)

    return checked
