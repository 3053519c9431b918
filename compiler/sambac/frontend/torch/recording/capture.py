"""Recording a module with torch.export, once as it trains and once as it evaluates.

Functions of PyTorch that cannot be recorded as they are written have stand-ins meanwhile.
"""

from __future__ import annotations

import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor as is_wrapped
from torch._higher_order_ops.scan import scan_op
from torch.compiler import is_dynamo_compiling
from torch.distributions import Distribution
from torch.export import ExportedProgram
from torch.export import _trace as tracing
from torch.nn import functional as functional_api
from torch.nn.modules import module as modules
from torch.nn.modules import transformer
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.hooks import RemovableHandle
from torch.utils.weak import WeakIdKeyDictionary

from pef.wording import listed
from sambac.errors import CompileError
from sambac.frontend.torch.errors import place_outside, refusal
from sambac.frontend.torch.modules.guards import (
    keeping_classes,
    naming_derivatives,
    refusing_hooks,
    require_no_hooks,
    without_seeds,
)
from sambac.frontend.torch.modules.inputs import (
    Example,
    arguments_of,
    form_of_shapes,
    module_name,
)
from sambac.frontend.torch.modules.memory import Before, Surroundings, Told, called_afresh
from sambac.frontend.torch.modules.tape import tensors_in
from sambac.frontend.torch.modules.when_exported import asking, call_copy, differences
from sambac.frontend.torch.own_operators import parts_of, takes_derivatives
from sambac.frontend.torch.patching import (
    OwnValue,
    quiet,
    regions_of_bodies,
    replaced,
    replaced_here,
)
from sambac.frontend.torch.states import stand_ins

from .alignment import SelectedTargets, twice_differentiable
from .certain import CertainDraws
from .checks import PassedChecks, require_passed
from .covariance import corrcoef, cov
from .derivatives import derivatives
from .flexible import flexible_attention
from .known import knowing_few, recorded
from .losses import gaussian_nll_loss, multi_margin_loss
from .minima import decided_minima
from .own_gradients import own_gradients
from .packed import PackedSequences, require_full

_ANSWERS = {torch.isfinite: True, Tensor.isfinite: True, torch.isinf: False, Tensor.isinf: False}
"""What asks it of each number, and what is answered."""

_OF_ALL = {True: (torch.all, Tensor.all), False: (torch.any, Tensor.any)}
"""What asks it of all of them."""


def capture(
    module: torch.nn.Module, example: Example, around: Surroundings, *, training: bool
) -> tuple[ExportedProgram, Told]:
    """Return the operators that `module` runs on inputs like `example`, in one of its modes.

    Beside them is what the user is to be told of calls that are not all alike. What is `around` may
    have been found before other recordings. A module that is in training mode already trains as it
    is, so that submodules that were put into evaluation mode (a frozen BatchNorm) stay there. The
    module is not changed. Raises `CompileError` where its code cannot be recorded.
    """
    if training:
        _require_trainable(module)
        program, told = _captured(module, example, around, training=True, differentiates=True)
        if not (takes_derivatives(program) and _has_loops(program)):
            return program, told
        with twice_differentiable():
            return _captured(module, example, around, training=True, differentiates=True)
    # Only for a derivative do backward methods and hooks count while a module evaluates.
    program, told = _captured(module, example, around, training=False, differentiates=False)
    if not takes_derivatives(program):
        return program, told
    require_no_hooks(module)
    with twice_differentiable():
        return _captured(module, example, around, training=False, differentiates=True)


def _captured(
    module: torch.nn.Module,
    example: Example,
    around: Surroundings,
    *,
    training: bool,
    differentiates: bool,
) -> tuple[ExportedProgram, Told]:
    """Do so; what changes gradients is recorded, or refused, if it `differentiates`."""
    name = module_name(module)
    guard = refusing_hooks(name) if differentiates else naming_derivatives(name)
    own = own_gradients(name) if differentiates else nullcontext()
    finite, checks, packed = _FiniteNumbers(name), PassedChecks(name), PackedSequences(name)
    with _mode(module, training), torch.enable_grad(), asking() as asked:
        if any(map(_has_own_mode, module.modules())):
            around = Surroundings.of(module, example)
        try:
            with (
                _without_looks(),
                quiet(),
                guard,
                keeping_classes(name),
                knowing_few(),
                own,
                derivatives(),
                checks,
                checks.of_numbers(),
                CertainDraws(),
                finite if training else nullcontext(),
                stand_ins(module),
                decided_minima() if example.shapes else nullcontext(),
                called_afresh(module, example, training, around) as before,
                packed.stand_ins(),
                _without_assignments(),
            ):
                program = recorded(module, partial(_exported, module, example))
            checks.require_told()
        except Exception as error:  # the module's own code runs here, and may raise anything
            _require_form(module, example, error)
            raise refusal(name, error) from error
        _require_unwrapped(name, program)
        before.told.extend(differences(module, example, asked, before))
        if finite.told:
            _require_finite(module, example, before)
        if checks.told:
            require_passed(module, example, before, checks)
        if packed.told:
            require_full(module, example, before, packed)
        before.told.extend((*finite.told, *checks.told, *packed.told))
    return program, before.told


def _has_loops(program: ExportedProgram) -> bool:
    nodes = (node for part in parts_of(program) for node in part.graph.nodes)
    return any(node.target is scan_op for node in nodes)


def _exported(module: torch.nn.Module, example: Example) -> ExportedProgram:
    with regions_of_bodies():
        program: ExportedProgram = torch.export.export(
            module,
            example.args,
            dict(example.kwargs),
            dynamic_shapes=example.shapes,
            strict=False,
        )
    return program


def _require_unwrapped(name: str, program: ExportedProgram) -> None:
    """Raise `CompileError` for tensors of a derivative that PyTorch lets become constants."""
    if any(is_wrapped(item) for item in tensors_in(program.constants)):
        raise CompileError(
            f"{name} takes derivatives inside forward (torch.func), which cannot be recorded; "
            "write their formulas into it"
        )


_OTHER_FORM = re.compile(r"Node \w+ mismatch|dynamic_shapes.*mismatch|mismatch.*dynamic_shapes")
"""What torch says where dynamic_shapes are no tree as the inputs are."""


def _require_form(module: torch.nn.Module, example: Example, error: Exception) -> None:
    """Raise `CompileError` if `error` is of the form of dynamic_shapes: say which it has to be."""
    if example.shapes is None or not _OTHER_FORM.search(str(error)):
        return
    given = dict(arguments_of(module.forward, example.args, example.kwargs))
    said = str(error).partition("\n")[0]
    raise CompileError(
        f"{module_name(module)}: dynamic_shapes have another form than the inputs, for which it is "
        f"{form_of_shapes(given)}, with the open axes of each tensor in its braces ({said})"
    ) from error


@contextmanager
def _mode(module: torch.nn.Module, training: bool) -> Iterator[None]:
    """Put `module` into training or evaluation mode, and back into its modes afterwards."""
    before = {part: part.training for part in module.modules()}
    if module.training != training:
        module.train(training)
    try:
        yield
    finally:
        for part, mode in before.items():
            part.training = mode


def _has_own_mode(module: torch.nn.Module) -> bool:
    """Tell whether to put `module` into a mode runs code of its own, which may change anything."""
    return "train" in vars(module) or type(module).train is not torch.nn.Module.train


def _require_trainable(module: torch.nn.Module) -> None:
    require_no_hooks(module)
    averaging = [
        name or module_name(module)
        for name, part in module.named_modules()
        if isinstance(part, _BatchNorm)
        and part.momentum is None
        and part.track_running_stats
        and (part.training or not module.training)
    ]
    if averaging:
        raise CompileError(
            f"the BatchNorm {listed(averaging, separator=', ')} has momentum=None, a cumulative "
            "average, which cannot be recorded; give it a momentum"
        )


@contextmanager
def _without_looks() -> Iterator[None]:
    """Keep layers of PyTorch from looking at values, and give losses that lose something stand-ins.

    Transformers look whether a mask happens to be causal, a loss whether variances are negative,
    covariances whether there is any weight, distributions whether their parameters are valid. A
    layer that is converted to what it is stays. What other threads call is as it was.
    """
    validates = OwnValue(own=False, before=Distribution._validate_args)
    selected = SelectedTargets()
    with (
        selected,
        replaced_here(transformer, "_detect_is_causal_mask", _is_said_to_be_causal),
        replaced_here(functional_api, "gaussian_nll_loss", gaussian_nll_loss),
        replaced_here(functional_api, "multi_margin_loss", multi_margin_loss),
        replaced_here(torch, "cov", cov),
        replaced_here(torch, "corrcoef", corrcoef),
        replaced_here(torch, "ctc_loss", selected.ctc_loss),
        replaced(Distribution, "_validate_args", validates),
        replaced_here(torch, "from_numpy", _copied),
        replaced_here(torch.nn.Module, "_apply", _applied),
        flexible_attention(),
        without_seeds(),
    ):
        yield


def _copied(array: np.ndarray) -> torch.Tensor:
    """Return a tensor of what an array holds, which this function shows, unlike `from_numpy`."""
    return torch.tensor(array)


_apply: Callable[..., torch.nn.Module] = torch.nn.Module._apply


def _applied(
    module: torch.nn.Module, change: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True
) -> torch.nn.Module:
    """Do as `Module._apply`, by which to(), float() and cpu() convert, but where nothing changes.

    It swaps tensors even for themselves while they are recorded, which fails. `change` is tried on
    one of each kind, if it is PyTorch's own: another one may write.
    """
    states = (*module.parameters(recurse), *module.buffers(recurse))
    kinds = {(state.dtype, state.device) for state in states}
    if getattr(change, "__module__", None) == modules.__name__:
        with _disable_current_modes():
            tried = [torch.empty((), dtype=dtype, device=device) for dtype, device in kinds]
            if all(change(item) is item for item in tried):
                return module
    return _apply(module, change, recurse)


@contextmanager
def _without_assignments() -> Iterator[None]:
    """Keep torch.export from recording what is assigned to buffers, after they are written to.

    `called_afresh` makes all of it writes, each of what was assigned.
    """

    def unheard(_module: torch.nn.Module, _assigned: dict[str, str]) -> RemovableHandle:
        return RemovableHandle(OrderedDict())

    with replaced(tracing, "register_buffer_assignment_hook", unheard):
        yield


def _is_said_to_be_causal(
    mask: torch.Tensor | None, is_causal: bool | None = None, size: int | None = None
) -> bool:
    return is_causal is True


class _FiniteNumbers(TorchFunctionMode):
    """Answers whether all numbers are finite, for the module called `name`: as if they were.

        if not torch.isfinite(x).all():        x = x
            x = torch.clamp(x, -m, m)

    Layers ask it to clamp what overflows in float16, and what depends on values cannot be recorded.
    `told` gets a sentence of each place. Where numbers are `real`, the answers are the true ones,
    and `told` gets the places where they are others.
    """

    def __init__(self, name: str, *, real: bool = False) -> None:
        super().__init__()
        self.name = name
        self.real = real
        self.told: dict[str, None] = {}
        self._each = WeakIdKeyDictionary()
        self._all = WeakIdKeyDictionary()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call an operator, or answer."""
        if is_dynamo_compiling():  # which records the bodies of loops and choices, and this too
            return func(*args, **(kwargs or {}))
        given = args[0] if len(args) == 1 and not kwargs and isinstance(args[0], Tensor) else None
        if func is Tensor.__bool__ and (answer := _noted(self._all, given)) is not None:
            return self._answered(answer, func(given) if self.real else answer)
        asked = _noted(self._each, given)
        result = func(*args, **(kwargs or {}))
        if func in _ANSWERS and given is not None:
            self._each[result] = _ANSWERS[func], result._version
        elif asked is not None and func in _OF_ALL[asked]:
            self._all[result] = asked, result._version
        return result

    def _answered(self, assumed: bool, answer: bool) -> bool:
        place = f" at {place_outside(sys._getframe())}"
        if not self.real:
            self.told[
                f"{self.name} asks whether all numbers are finite{place}; it is compiled as if "
                "they were"
            ] = None
        elif answer is not assumed:
            self.told[place] = None
        return answer


def _noted(answers: WeakIdKeyDictionary, given: Tensor | None) -> bool | None:
    """Return what is noted of a tensor to which nothing was written since."""
    if given is None or given not in answers:
        return None
    answer, version = answers[given]
    return bool(answer) if given._version == version else None


def _require_finite(module: torch.nn.Module, example: Example, before: Before) -> None:
    """Raise `CompileError` if numbers are infinite where `module` asks, for the example inputs.

    What asks may not ask of what overflows, but of a mask that always has infinities.
    """
    watch = _FiniteNumbers(module_name(module), real=True)
    with suppress(Exception):  # of the module's own code, where it is no more than called
        call_copy(module, example, before, watch)
    if watch.told:
        raise CompileError(
            f"{watch.name} asks whether all numbers are finite{next(iter(watch.told))}, and for "
            "the example inputs they are not; ask only of what overflows, and give inputs for "
            "which it does not"
        )
