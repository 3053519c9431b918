"""Modules that compute something else where they are exported.

    if torch.compiler.is_exporting(): ...

What such a module does then is what is recorded. Where its code asks, it is called both as it is
and as if it were exported, and the user is told how far the results are apart. Large layers are
thinned first (`thinning`): only where that makes a difference are they called whole.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import wraps
from types import ModuleType

import torch
from torch import Tensor
from torch._export.utils import _compiling_state_context as being_exported
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import Parameter
from torch.utils import _pytree as pytree

from pef.wording import listed
from sambac.frontend.torch.patching import replaced

from .inputs import Example, module_name
from .memory import Before
from .thinning import Thinned

_QUESTIONS = ("is_compiling", "is_exporting")
"""Functions of `torch.compiler` that say something else while a module is recorded."""

_PASSES_ON = "torch._dynamo.external_utils"
"""What asks for others."""

_NEAR, _ROUNDINGS = 1e-3, 16
"""How far apart results of equal meaning are: a share of the largest, or so many roundings."""


@contextmanager
def asking() -> Iterator[set[str]]:
    """Yield the questions that code asks meanwhile, without those that PyTorch asks itself."""
    asked: set[str] = set()
    questions = [getattr(torch.compiler, name) for name in _QUESTIONS]
    noted = {id(question): _noted(question, asked) for question in questions}
    with ExitStack() as stack:
        for module in _modules():
            names = [name for name, value in [*vars(module).items()] if id(value) in noted]
            for name in names:
                stack.enter_context(replaced(module, name, noted[id(vars(module)[name])]))
        yield asked


def _modules() -> list[ModuleType]:
    """Return where code may have the questions by names of its own, as `from ... import` gives."""
    others = (
        module
        for name, module in [*sys.modules.items()]
        if hasattr(module, "__dict__") and not f"{name}.".startswith("torch.")
    )
    return [torch.compiler, *others]


def _noted(question: Callable[[], bool], asked: set[str]) -> Callable[[], bool]:
    @wraps(question)
    def ask() -> bool:
        frame = sys._getframe(1)
        if frame.f_globals.get("__name__") == _PASSES_ON and frame.f_back is not None:
            frame = frame.f_back
        if not f"{frame.f_globals.get('__name__')}.".startswith("torch."):
            asked.add(question.__name__)
        return question()

    # Where PyTorch records bodies of loops it calls the function, and does not look into it.
    marked: Callable[[], bool] = torch.compiler.assume_constant_result(ask)  # type: ignore[no-untyped-call]  # torch's
    return marked


def differences(
    module: torch.nn.Module, example: Example, asked: set[str], before: Before
) -> list[str]:
    """Return a sentence for the user, if `module` computes something else where it is exported.

    It is called in its present mode, on inputs that have numbers, and left as it was `before`.
    """
    if not asked or not _has_numbers(module, example):
        return []
    questions = listed(sorted(asked), separator=" and ")
    says = f"{module_name(module)} asks torch.compiler.{questions} what it is to compute"
    is_open = f"{says}; whether that is something else where it is exported is open, as"
    try:
        _copy_of(module)
    except Exception as error:  # classes may say themselves how they are copied
        return [f"{is_open} it cannot be copied, which raises {type(error).__name__}"]
    try:
        if _is_same(module, example, before):
            return []
        apart = _compared(module, example, before, nullcontext)
    except Exception as error:  # the module's own code runs here, and may raise anything
        return [f"{is_open} a call of it raises {type(error).__name__}"]
    recorded = "what it computes where it is exported, which is recorded, is something else"
    cure = "change what it asks, or what hangs on the answer"
    return [f"{says}, and {recorded}: {apart}; {cure}"] if apart else []


def call_copy(
    module: torch.nn.Module, example: Example, before: Before, way: AbstractContextManager[object]
) -> None:
    """Call a copy of `module`, as it was `before`, in a context, if its inputs have numbers."""
    if _has_numbers(module, example):
        with before.kept():
            _called(_copy_of(module), example, way)


def _has_numbers(module: torch.nn.Module, example: Example) -> bool:
    states = [*module.parameters(), *module.buffers()]
    given = [*_tensors((example.args, example.kwargs)), *states]
    return not any(isinstance(item, FakeTensor) or item.is_meta for item in given)


def _is_same(module: torch.nn.Module, example: Example, before: Before) -> bool:
    """Tell whether large layers, each reduced to a few of its weights, lead to the same."""
    try:
        return not _compared(module, example, before, Thinned)
    except Exception:  # of code that looks at numbers
        return False


def _compared(
    module: torch.nn.Module,
    example: Example,
    before: Before,
    layers: Callable[[], AbstractContextManager[object]],
) -> str:
    """Return how far calls of copies of `module` are apart, with `layers` whole or thinned."""
    results = []
    for way in (nullcontext, being_exported):
        with before.kept(), layers():
            results.append([*_tensors(_called(_copy_of(module), example, way()))])
    return _apart(*results)


def _called(own: torch.nn.Module, example: Example, way: AbstractContextManager[object]) -> object:
    """Return what a call gives; its inputs are copies, and all draw the same.

    Parts that `torch.compile` has wrapped are called as they are.
    """
    args, kwargs = pytree.tree_map(_copied, (example.args, dict(example.kwargs)))
    plainly = torch.compiler.set_stance("force_eager")
    with torch.random.fork_rng(devices=()), torch.no_grad(), plainly, way:
        torch.manual_seed(0)
        return own(*args, **kwargs)


def _copy_of(module: torch.nn.Module) -> torch.nn.Module:
    """Return a copy, whose parameters take memory once something is written to them."""
    parameters = {id(item): item for item in module.parameters() if type(item) is Parameter}
    return copy.deepcopy(module, {at: _lazily(item) for at, item in parameters.items()})


def _lazily(item: Parameter) -> Parameter:
    content = item.detach()
    try:
        content = torch._lazy_clone(content)
    except RuntimeError:  # memory that is not PyTorch's own
        content = content.clone()
    return Parameter(content, requires_grad=item.requires_grad)


def _copied(item: object) -> object:
    return item.clone() if isinstance(item, Tensor) else item


def _tensors(item: object) -> Iterator[Tensor]:
    """Yield the tensors and numbers in collections of collections, those of mappings by key."""
    if isinstance(item, Tensor):
        yield item
    elif isinstance(item, (bool, int, float, complex)):
        yield torch.tensor(item)
    elif isinstance(item, Mapping):
        for key in sorted(item, key=str):
            yield from _tensors(item[key])
    else:  # objects that hold tensors are known to PyTorch by now
        for part in pytree.tree_leaves(item):
            if part is not item:
                yield from _tensors(part)


def _apart(plain: Sequence[Tensor], exported: Sequence[Tensor]) -> str:
    """Return how far results are apart, an empty text where that is rounding."""
    kinds = [[(tuple(item.shape), item.dtype) for item in each] for each in (plain, exported)]
    if kinds[0] != kinds[1]:
        return "results of other shapes or types"
    most = max(map(_share, plain, exported), default=0.0)
    return f"results are up to {100 * most:.1f} % of the largest number apart" if most else ""


def _share(a: Tensor, b: Tensor) -> float:
    """Return how far two tensors are apart, as a share of the largest number; 0 for roundings."""
    if not (a.is_floating_point() or a.is_complex()):
        return float(not torch.equal(a, b))
    one, other = (x.to(torch.complex128 if x.is_complex() else torch.float64) for x in (a, b))
    same = (one == other) | (one.isnan() & other.isnan())
    gap = torch.where(same, 0.0, (one - other).abs()).nan_to_num(torch.inf)
    if not gap.any():
        return 0.0
    largest = one.abs().nan_to_num(0.0, 0.0).amax() + torch.finfo(a.dtype).tiny
    share = float(gap.amax() / largest)
    return share if share > max(_NEAR, _ROUNDINGS * torch.finfo(a.dtype).eps) else 0.0
