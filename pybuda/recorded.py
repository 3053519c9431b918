"""PyBuda modules as torch modules, so that the compiler records them as it does any other."""

from __future__ import annotations

import queue
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import torch

from sambahost import samples

from .errors import PyBudaError
from .parameter import Parameter
from .recording import Evaluation, Recording, recorded_in
from .tensor import Tensor

Given: TypeAlias = "torch.Tensor | tuple[torch.Tensor, ...]"
"""An argument of a module: a tensor, or, of a loss, the several outputs or targets."""


class Traceable(Protocol):
    """A module whose `forward` applies operators to tensors."""

    def get_parameters(self) -> list[Parameter]:
        """Return all parameters."""

    def tapped(self) -> Mapping[str, queue.Queue[object]]:
        """Return the queues that get what operators give, by the names of these."""

    def __call__(self, *inputs: Any) -> object:
        """Return the outputs: a tensor, or several."""


class AppliedOperator(torch.nn.Module):
    """Where an operator of some kind is recorded, whose path is the operator's name.

    It is of none where it only leads to others.
    """

    def __init__(self, kind: str = "") -> None:
        super().__init__()
        self.kind = kind

    def forward(self, evaluate: Evaluation) -> torch.Tensor:
        """Return what the operator gives."""
        return evaluate()


class RecordedModule(torch.nn.Module):
    """A PyBuda module whose parameters are those of a torch module, by their numbers.

    Its operators are modules in it, once it has run: what is recorded then bears their names.
    """

    def __init__(self, module: Traceable) -> None:
        super().__init__()
        self._traced = module
        self.taps = module.tapped()
        self.owners = {f"p{i}": parameter for i, parameter in enumerate(module.get_parameters())}
        for name, parameter in self.owners.items():
            self.register_parameter(name, parameter.in_torch())

    def _get_name(self) -> str:
        return type(self._traced).__name__

    def forward(self, *inputs: Given, **named: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the outputs as torch tensors, and behind them what `taps` are of."""
        parameters = {id(owner): self.get_parameter(name) for name, owner in self.owners.items()}
        kinds: Counter[str] = Counter()
        tapped: dict[str, torch.Tensor] = {}

        def applied(kind: str, name: str, evaluate: Evaluation) -> torch.Tensor:
            kinds[kind] += 1
            place = self._place(kind, name or f"{kind}_{kinds[kind] - 1}")
            found: torch.Tensor = place(evaluate)
            if name in self.taps:
                tapped[name] = found
            return found

        with recorded_in(Recording(parameters, self.training, applied)):
            found = self._traced(
                *map(_wrapped, inputs), **{name: Tensor(value) for name, value in named.items()}
            )
        if missing := [*(self.taps.keys() - tapped.keys())]:
            raise PyBudaError(
                f"there is no operator '{missing[0]}' to tap; name one of this module"
            )
        return (*(item.value() for item in _outputs(found)), *(tapped[name] for name in self.taps))

    def _place(self, kind: str, name: str) -> AppliedOperator:
        """Return where an operator is recorded; dots in its name lead to inner modules."""
        here: torch.nn.Module = self
        for step in name.split("."):
            known = dict(here.named_children())
            is_taken = not step or (step not in known and hasattr(here, step))
            label = f"{step}_" if is_taken else step
            found = known.get(label)
            if found is None:
                if torch.compiler.is_exporting():
                    return AppliedOperator()  # of a module that runs otherwise when recorded
                here.add_module(label, found := AppliedOperator())
            here = found
        assert isinstance(here, AppliedOperator)
        here.kind = kind
        return here


def _names(module: torch.nn.Module) -> str:
    """Return what messages call a module that is made of those of a program."""
    parts = (part._get_name() for part in module.children())  # type: ignore[no-untyped-call]
    return " and ".join(parts)


class Chain(torch.nn.Module):
    """Modules that run one after the other; the first may take its inputs by name.

    With `taps` what these are of comes behind the outputs of the last one.
    """

    def __init__(
        self, parts: Iterable[torch.nn.Module], names: Sequence[str] = (), taps: bool = False
    ) -> None:
        super().__init__()
        self._taps = taps
        self._names = tuple(names)
        self._count = 0
        for part in parts:  # a module may be there twice
            self.add_module(str(self._count), part)
            self._count += 1

    _get_name = _names

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the outputs of the last module, without structure."""
        parts = [self.get_submodule(str(index)) for index in range(self._count)]
        named = dict(zip(self._names, tensors, strict=True)) if self._names else {}
        outputs: tuple[torch.Tensor, ...] = () if named else tensors
        kept: list[torch.Tensor] = []
        for part in parts:
            found, named = leaves(part(*outputs, **named)), {}
            count = len(found) - len(_taps(part))
            outputs = found[:count]
            kept += found[count:]
        return (*outputs, *kept) if self._taps else outputs

    def taps(self) -> list[queue.Queue[object]]:
        """Return the queues that get what comes behind the outputs."""
        return [tap for part in self.children() for tap in _taps(part).values()]


def _taps(part: torch.nn.Module) -> Mapping[str, queue.Queue[object]]:
    return part.taps if isinstance(part, RecordedModule) else {}


class Graded(torch.nn.Module):
    """Modules and the loss that is computed from their outputs and from targets.

    Without modules the inputs are what the loss is computed from.
    """

    def __init__(self, chain: Chain | None, loss: torch.nn.Module, inputs: int) -> None:
        """Make one of the first `inputs` tensors, which go to the modules; others are targets."""
        super().__init__()
        self.chain = chain
        self.loss = loss
        self._inputs = inputs

    _get_name = _names

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return what the loss returns, for outputs and targets, tuples where they are several."""
        inputs, targets = tensors[: self._inputs], tensors[self._inputs :]
        outputs = inputs if self.chain is None else self.chain(*inputs)
        return leaves(self.loss(_alone(outputs), _alone(targets)))


def _alone(tensors: tuple[torch.Tensor, ...]) -> Given:
    return tensors[0] if len(tensors) == 1 else tensors


def leaves(found: object) -> tuple[torch.Tensor, ...]:
    """Return the tensors of what a torch module returned. Raises `PyBudaError` for what is none."""
    return samples.leaves(found, PyBudaError)


def _wrapped(given: Given) -> Tensor | tuple[Tensor, ...]:
    return tuple(map(Tensor, given)) if isinstance(given, tuple) else Tensor(given)


def _outputs(found: object) -> list[Tensor]:
    items = [*found] if isinstance(found, tuple | list) else [found]
    wrong = [type(item).__name__ for item in items if not isinstance(item, Tensor)]
    if wrong or not items:
        raise PyBudaError(
            f"forward returned {', '.join(wrong) or 'nothing'}; pybuda tensors were expected"
        )
    return [item for item in items if isinstance(item, Tensor)]
