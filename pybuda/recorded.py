"""PyBuda modules as torch modules, so that the compiler records them as it does any other."""

from __future__ import annotations

import queue
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from sambahost.chains import Given, Keeping

from .errors import PyBudaError
from .parameter import Parameter
from .recording import Evaluation, Recording, recorded_in
from .tensor import Tensor


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


class RecordedModule(Keeping):
    """A PyBuda module whose parameters are those of a torch module, by their numbers.

    Its operators are modules in it, once it has run: what is recorded then bears their names. It
    keeps what `taps` are of, and those of the operators `wanted` that it has.
    """

    def __init__(self, module: Traceable) -> None:
        super().__init__()
        self._traced = module
        self.taps = module.tapped()
        self.wanted: Sequence[str] = ()
        self.owners = {f"p{i}": parameter for i, parameter in enumerate(module.get_parameters())}
        for name, parameter in self.owners.items():
            self.register_parameter(name, parameter.in_torch())

    def _get_name(self) -> str:
        return type(self._traced).__name__

    def forward(self, *inputs: Given, **named: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the outputs as torch tensors, and behind them what is kept."""
        parameters = {id(owner): self.get_parameter(name) for name, owner in self.owners.items()}
        kinds: Counter[str] = Counter()
        given: dict[str, torch.Tensor] = {}

        def applied(kind: str, name: str, evaluate: Evaluation) -> torch.Tensor:
            kinds[kind] += 1
            label = name or f"{kind}_{kinds[kind] - 1}"
            given[label] = self._place(kind, label)(evaluate)
            return given[label]

        with recorded_in(Recording(parameters, self.training, applied)):
            found = self._traced(
                *map(_wrapped, inputs), **{name: Tensor(value) for name, value in named.items()}
            )
        if missing := [*(self.taps.keys() - given.keys())]:
            raise PyBudaError(
                f"there is no operator '{missing[0]}' to tap; name one of this module"
            )
        keeps = (*self.taps, *(name for name in self.wanted if name in given))
        if keeps != self.keeps:
            self.keeps = keeps
        return (*(item.value() for item in _outputs(found)), *(given[name] for name in keeps))

    def _place(self, kind: str, name: str) -> AppliedOperator:
        """Return where an operator is recorded; dots in its name lead to inner modules."""
        here: torch.nn.Module = self
        for label in path_of(name).split("."):
            if (found := dict(here.named_children()).get(label)) is None:
                if torch.compiler.is_exporting():
                    return AppliedOperator()  # of a module that runs otherwise when recorded
                here.add_module(label, found := AppliedOperator())
            here = found
        assert isinstance(here, AppliedOperator)
        here.kind = kind
        return here


_TAKEN = frozenset((*dir(AppliedOperator()), *dir(RecordedModule), "owners", "taps", "wanted"))


def path_of(name: str) -> str:
    """Return where an operator is recorded: attributes of modules have no names of others."""
    return ".".join(f"{step}_" if _is_taken(step) else step for step in name.split("."))


def name_at(path: str) -> str:
    """Return the name of the operator that is recorded there."""
    pairs = ((step, step.removesuffix("_")) for step in path.split("."))
    return ".".join(own if _is_taken(own) else step for step, own in pairs)


def _is_taken(step: str) -> bool:
    return not step or step in _TAKEN or re.fullmatch(r"p\d+", step) is not None


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
