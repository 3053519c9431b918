"""Packed sequences, whose number of rows depends on the lengths of the sequences.

    packed = pack_padded_sequence(x, lengths)          x, and how long each sequence is
    states, last = lstm(packed)                        layers that know lengths
    states, lengths = pad_packed_sequence(states)      zeros behind the last steps

The rows of `packed.data` are what a mask of the steps that there are selects, in the order in which
PyTorch packs them. What recurrent layers alone read, and is padded again, needs no rows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import get_ident
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import _VF, Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.nn.modules.rnn import LSTM, RNNBase
from torch.utils.weak import WeakIdKeyDictionary

from sambac.errors import CompileError
from sambac.frontend.torch.errors import place_outside
from sambac.frontend.torch.modules.inputs import Example
from sambac.frontend.torch.modules.memory import Before
from sambac.frontend.torch.modules.when_exported import call_copy
from sambac.frontend.torch.own_operators import steps_of_lengths
from sambac.frontend.torch.patching import replaced, replaced_here

_KINDS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_EXPECTED = ((RNNBase, "get_expected_hidden_size"), (LSTM, "get_expected_cell_size"))
"""What says the shapes of states, where it asks how many sequences there are as a number."""

_PACK, _PAD = "_pack_padded_sequence", "_pad_packed_sequence"


@dataclass(frozen=True)
class _Steps:
    """Which steps there are: `mask` [T, N], and the `lengths` [N] of the sequences.

    `full` says that one sequence is known to have all steps.
    """

    lengths: Tensor
    mask: Tensor
    full: bool


class _All(int):
    """The number of all steps: PyTorch hands this one on where no other total is asked for."""


class _BatchSizes:
    """Stands for `PackedSequence.batch_sizes`, the numbers of sequences that have each step.

    Layers ask for the first, which is known. `counts` are all, for those who return them.
    """

    __slots__ = ("__weakref__", "counts", "first", "steps")

    def __init__(self, mask: Tensor) -> None:
        count: Any = mask.shape[0]  # open sizes are no numbers
        self.counts = mask.sum(1)
        self.first = mask.shape[1]
        self.steps = _All(count) if isinstance(count, int) else count

    @property
    def device(self) -> torch.device:
        """Where PyTorch has them."""
        return torch.device("cpu")

    def size(self, axis: int) -> int:
        """Return how many steps there are."""
        return (self.steps,)[axis]

    def __getitem__(self, step: int) -> Any:
        """Return how many sequences have a step: all have the first."""
        return self.first if step == 0 else self.counts[step]


class PackedSequences:
    """Lets sequences be packed while the module called `name` is recorded.

    `told` gets a sentence of where it is assumed that the longest has all steps.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.told: dict[str, None] = {}
        self._steps: WeakKeyDictionary[_BatchSizes, _Steps] = WeakKeyDictionary()
        self._sorted: Any = WeakIdKeyDictionary()  # lengths, and as they were given
        self._of_lengths: Any = WeakIdKeyDictionary()
        self._by_step: Any = WeakIdKeyDictionary()  # of rows, with the version that they had

    @contextmanager
    def stand_ins(self) -> Iterator[None]:
        """Give the functions that pack and pad, and the layers, stand-ins for this thread."""
        here = get_ident()
        stand_ins: dict[str, Callable[..., Any]] = {_PACK: self._pack, _PAD: self._pad}
        stand_ins.update((kind, self._layers(kind)) for kind in _KINDS)

        def at(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
            before = getattr(_VF, name)

            def call(*args: Any) -> Any:
                packed = name == _PACK or any(isinstance(one, _BatchSizes) for one in args)
                return (own if packed and get_ident() == here else before)(*args)

            return call

        with ExitStack() as stack:
            for name, by in stand_ins.items():
                stack.enter_context(replaced(_VF, name, at(name, by)))
            stack.enter_context(replaced_here(torch, "sort", self._sort(torch.sort)))
            for layers, name in _EXPECTED:
                stack.enter_context(replaced_here(layers, name, _expected(layers, name)))
            stack.callback(self._sorted.clear)
            stack.callback(self._of_lengths.clear)
            yield

    def _sort(self, before: Callable[..., Any]) -> Callable[..., Any]:
        """Return what sorts, and remembers which lengths these were: others may sort as well."""

        def sort(given: Tensor, *args: Any, **kwargs: Any) -> Any:
            found = before(given, *args, **kwargs)
            if not args and kwargs == {"descending": True}:
                self._sorted[found[0]] = given, _versions(found[0], given)
            return found

        return sort

    def _pack(self, x: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, _BatchSizes]:
        """Return the rows of the steps that there are, and how many these are."""
        by_step = x.transpose(0, 1) if batch_first else x
        known = _known(lengths)
        if known is not None:
            by_step = by_step[: int(known.max())]
        steps = self._steps_there(by_step.shape[0], lengths, full=known is not None)
        sizes = _BatchSizes(steps.mask)
        self._steps[sizes] = steps
        return self._rows(by_step, steps), sizes

    def _steps_there(self, count: Any, lengths: Tensor, *, full: bool) -> _Steps:
        """Return which of `count` steps there are: the same mask for all tensors of `lengths`."""
        given, versions = self._sorted.get(lengths, (lengths, None))
        if versions != _versions(lengths, given):
            given = lengths
        state = str(count), get_proxy_mode(), given._version
        found: tuple[_Steps | None, object] = self._of_lengths.get(given, (None, None))
        steps, before = found
        if steps is None or before != state:
            places = torch.arange(count, device=lengths.device)
            # A copy, as the module may write to its lengths.
            steps = _Steps(lengths.clone(), places.unsqueeze(1) < lengths, full)
            self._of_lengths[given] = steps, state
        return steps

    def _pad(
        self, rows: Tensor, sizes: _BatchSizes, batch_first: bool, value: float, total: int
    ) -> tuple[Tensor, Tensor]:
        """Return all steps, with `value` where there are none, and the lengths."""
        steps = self._steps[sizes]
        kept = steps.mask.reshape(*steps.mask.shape, *[1] * (rows.dim() - 1))
        padded = self._at_steps(rows, steps).masked_fill(~kept, value)
        if total is not sizes.steps:
            behind = padded.new_full((total - padded.shape[0], *padded.shape[1:]), value)
            padded = torch.cat([padded, behind])
        elif not steps.full:
            self.told[
                f"{self.name} pads packed sequences to the longest one at "
                f"{place_outside(sys._getframe())}; it is compiled "
                f"as if that had all {sizes.steps} steps"
            ] = None
        return padded.transpose(0, 1) if batch_first else padded, steps.lengths.clone()

    def _layers(self, kind: str) -> Callable[..., tuple[Any, ...]]:
        """Return what recurrent layers of a kind make of rows."""

        def layers(
            rows: Tensor,
            sizes: _BatchSizes,
            hx: Tensor | Sequence[Tensor],
            params: Sequence[Tensor],
            *settings: Any,
        ) -> tuple[Any, ...]:
            steps = self._steps[sizes]
            starts = [hx] if isinstance(hx, Tensor) else [*hx]
            by_step = self._at_steps(rows, steps)
            states, *last = steps_of_lengths(
                kind, by_step, steps.lengths, starts, [*params], *settings
            )
            return (self._rows(states, steps), *last)

        return layers

    def _rows(self, by_step: Tensor, steps: _Steps) -> Tensor:
        rows = by_step[steps.mask]
        self._by_step[rows] = by_step, _versions(rows, by_step)
        return rows

    def _at_steps(self, rows: Tensor, steps: _Steps) -> Tensor:
        """Return rows at their steps, as they were before; other steps have any content."""
        by_step, versions = self._by_step.get(rows, (rows, None))
        if versions != _versions(rows, by_step):
            by_step = rows.new_zeros(*steps.mask.shape, *rows.shape[1:])
            by_step[steps.mask] = rows
        return by_step  # type: ignore[no-any-return]


def _expected(layers: type[RNNBase], name: str) -> Callable[..., Any]:
    """Return what says the shape of states, whose number of sequences may be open."""
    before = vars(layers)[name]

    def expected(self: RNNBase, x: Tensor, sizes: Any) -> Any:
        if not isinstance(sizes, _BatchSizes):
            return before(self, x, sizes)
        count, _, width = before(self, x, [1])
        return count, sizes.first, width

    return expected


def _versions(*given: Tensor) -> tuple[int, ...]:
    return tuple(one._version for one in given)


def _known(lengths: Tensor) -> Tensor | None:
    """Return lengths that are the same in every run."""
    if isinstance(lengths, FunctionalTensor):
        lengths = torch._from_functional_tensor(lengths.elem)
    return lengths.constant if isinstance(lengths, FakeTensor) else None


def require_full(
    module: torch.nn.Module, example: Example, before: Before, packed: PackedSequences
) -> None:
    """Raise `CompileError` if no sequence of the example inputs has all steps."""
    short: list[int] = []
    pack = getattr(_VF, _PACK)

    def noted(x: Tensor, lengths: Tensor, batch_first: bool) -> Any:
        if int(lengths.max()) < x.shape[int(batch_first)]:
            short.append(int(lengths.max()))
        return pack(x, lengths, batch_first)

    call_copy(module, example, before, replaced(_VF, _PACK, noted))
    if short:
        raise CompileError(
            f"{next(iter(packed.told))}, and the longest of the example inputs has {short[0]}; "
            "give pad_packed_sequence a total_length, or inputs of which one has all steps"
        )
