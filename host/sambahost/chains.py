"""Torch modules that run one after the other, the loss behind them, and what is kept on the way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self, TypeAlias

from torch import Tensor, nn

from .samples import Tensors, leaves

Given: TypeAlias = "Tensor | Tensors"
"""An argument of a module: a tensor, or, of a loss, the several outputs or targets."""
Raises: TypeAlias = Callable[[str], Exception]
"""Makes errors of an API from sentences."""


class Keeping(nn.Module):
    """A module that gives, behind its outputs, what those inside it give whose names it `keeps`."""

    keeps: Sequence[str] = ()


class _OfProgram(nn.Module):
    """A module around those of a program: these say what in them trains.

    As layers that evaluate in a model that trains, such as frozen statistics, do so on.
    """

    def train(self, mode: bool = True) -> Self:
        """Put all into a mode; into training only modules of the program that are to evaluate."""
        self.training = mode
        for part in self.children():
            if isinstance(part, _OfProgram) or not (mode and part.training):
                part.train(mode)
        return self


class Chain(_OfProgram):
    """Modules that run one after the other; the first may take its inputs by name.

    With `kept` something comes behind the outputs of the last one: what `Keeping` modules give
    there, and what modules inside of others give that have these paths.
    """

    def __init__(
        self,
        parts: Iterable[nn.Module],
        raises: Raises,
        names: Sequence[str] = (),
        kept: Collection[str] | None = None,
    ) -> None:
        super().__init__()
        self._raises = raises
        self._names = tuple(names)
        self._kept = kept
        self._count = 0
        for part in parts:  # a module may be there twice
            self.add_module(str(self._count), part)
            self._count += 1

    def _get_name(self) -> str:
        return _names(self)

    def forward(self, *tensors: Tensor) -> Tensors:
        """Return the outputs of the last module, without structure, and what is kept."""
        named = dict(zip(self._names, tensors, strict=True)) if self._names else {}
        outputs: Tensors = () if named else tensors
        behind: list[Tensor] = []
        for part in self._parts():
            with _caught(part, self._paths(part)) as caught:
                found, named = leaves(part(*outputs, **named), self._raises), {}
            count = len(found) - len(part.keeps if isinstance(part, Keeping) else ())
            outputs = found[:count]
            behind += found[count:]
            for path in self._paths(part):
                if path not in caught:
                    raise self._raises(f"'{path}' did not run, and nothing of it can be kept")
                behind += leaves(caught[path], self._raises)[:1]
        return outputs if self._kept is None else (*outputs, *behind)

    def kept(self) -> list[tuple[nn.Module, Sequence[str]]]:
        """Return which modules have what comes behind the outputs, and the names of that."""
        if self._kept is None:
            return []
        return [
            (part, part.keeps if isinstance(part, Keeping) else self._paths(part))
            for part in self._parts()
        ]

    def _parts(self) -> list[nn.Module]:
        return [self.get_submodule(str(index)) for index in range(self._count)]

    def _paths(self, part: nn.Module) -> list[str]:
        """Return the paths of what is kept in a module that does not do so by itself."""
        if not self._kept or isinstance(part, Keeping):
            return []
        known = dict(part.named_modules())
        return [path for path in self._kept if path in known]


@contextmanager
def _caught(part: nn.Module, paths: Sequence[str]) -> Iterator[Mapping[str, object]]:
    """Give what the modules at these paths return meanwhile, the last time that each runs."""
    found: dict[str, object] = {}

    def noting(path: str) -> Callable[[nn.Module, object, object], None]:
        return lambda _module, _given, output: found.update({path: output})

    hooks = [part.get_submodule(path).register_forward_hook(noting(path)) for path in paths]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


class Graded(_OfProgram):
    """Modules and the loss that is computed from their outputs and from targets.

    Without modules the inputs are what the loss is computed from.
    """

    def __init__(self, chain: Chain | None, loss: nn.Module, inputs: int, raises: Raises) -> None:
        """Make one of the first `inputs` tensors, which go to the modules; others are targets."""
        super().__init__()
        self.chain = chain
        self.loss = loss
        self._inputs = inputs
        self._raises = raises

    def _get_name(self) -> str:
        return _names(self)

    def forward(self, *tensors: Tensor) -> Tensors:
        """Return what the loss returns, for outputs and targets, tuples where they are several."""
        inputs, targets = tensors[: self._inputs], tensors[self._inputs :]
        outputs = inputs if self.chain is None else self.chain(*inputs)
        return leaves(self.loss(_alone(outputs), _alone(targets)), self._raises)


def _alone(tensors: Tensors) -> Given:
    return tensors[0] if len(tensors) == 1 else tensors


def _names(module: nn.Module) -> str:
    """Return what messages call a module that is made of those of a program."""
    parts = (part._get_name() for part in module.children())  # type: ignore[no-untyped-call]
    return " and ".join(parts)
