"""What verifies training on a device: torch does the same, and both are compared."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from .golden import GoldenRule
from .golden_training import GoldenOptimizer, GoldenTrainer
from .sample_trainer import SampleTrainer
from .samples import Gradients, Samples, Tensors, gathered, joined, of_sample


@dataclass(frozen=True)
class Watched:
    """What is compared in training, and by which rule; `waived` are parts of names of parameters.

    Their gradients are left out.
    """

    rule: GoldenRule
    inputs: bool = True
    parameters: bool = True
    waived: Sequence[str] = ()

    def has(self, name: str) -> bool:
        """Return whether the gradient of a parameter is compared."""
        return self.parameters and not any(part in name for part in self.waived)


class _Golden(NamedTuple):
    """What torch trains: paths of parameters by name, and arguments by name if inputs came so."""

    trainer: GoldenTrainer
    optimizer: GoldenOptimizer | None
    paths: Mapping[str, str]
    names: tuple[str, ...]


class _GoldenPass(NamedTuple):
    """A microbatch that torch has run forward, and its outputs by sample."""

    batch: Samples
    outputs: list[Tensors]


class Watcher:
    """Does by torch what `trainer` does, and raises `AssertionError` where that gives another.

    After each step weights are those of the device, so that each step is compared by itself. Raises
    an error where it has trained before: nothing is known of its optimizer then.
    """

    def __init__(self, trainer: SampleTrainer, watched: Watched) -> None:
        self._trainer = trainer
        self._request = trainer.request
        self._watched = watched
        self._golden: _Golden | None = None
        self._passed: deque[_GoldenPass] = deque()
        if trainer.changes:
            raise self._request.raises(
                f"device '{self._request.device()}' has trained already, and verification begins "
                "with training; remove_modules, and place them anew"
            )

    def forward(
        self, batch: Samples, targets: Samples | None, found: Sequence[torch.Tensor]
    ) -> None:
        """Compare the outputs of a microbatch, or its losses."""
        golden = self._begun(batch)
        ordered = batch.ordered(golden.names)
        outputs = golden.trainer.forward(ordered.with_targets(targets).samples())
        self._passed.append(_GoldenPass(ordered, outputs))
        what = "output" if self._request.loss() is None else "loss"
        for index, (wanted, came) in enumerate(zip(joined(outputs), found, strict=True)):
            self._compare(f"{what} {index}", wanted, came)

    def backward(self, starts: Gradients | None, found: Gradients) -> None:
        """Compare the gradients of the inputs of a microbatch, and those of parameters so far."""
        golden, (batch, outputs) = self._begun(None), self._passed.popleft()
        by_sample = golden.trainer.backward(
            None if starts is None else of_sample(starts, index, each)
            for index, each in enumerate(outputs)
        )
        wanted = [
            gathered(each, given)
            for each, given in zip(zip(*by_sample, strict=True), batch.tensors, strict=False)
        ]
        for index, (own, came) in enumerate(zip(wanted, found, strict=True)):
            if self._watched.inputs and own is not None and came is not None:
                self._compare(f"gradient of input {index}", own, came)
        known = golden.trainer.gradients()
        for name, gradient in self._trainer.gradients().items():
            if self._watched.has(name):
                zeros = torch.zeros_like(gradient)
                wanted_here = known.get(golden.paths[name], zeros)
                self._compare(f"gradient of parameter '{name}'", wanted_here, gradient)

    def zero_gradients(self) -> None:
        """Let gradients add up from zero."""
        if self._golden is not None:
            self._golden.trainer.zero()

    def optimize(self) -> None:
        """Compare the weights after a step, and take those of the device."""
        golden, rate = self._begun(None), self._request.rate()
        gradients = golden.trainer.gradients()
        for name, weight in self._trainer.parameters().items():
            path = golden.paths[name]
            wanted = golden.trainer.value(path)
            if golden.optimizer is not None and rate is not None and path in gradients:
                wanted = golden.optimizer.stepped(path, wanted, gradients[path], rate)
            self._compare(f"parameter '{name}'", wanted, weight)
            golden.trainer.write(path, weight)

    def written(self) -> None:
        """Take the weights of the device, which the program has written to."""
        if self._golden is not None:
            for name, weight in self._trainer.parameters().items():
                self._golden.trainer.write(self._golden.paths[name], weight)

    def _begun(self, batch: Samples | None) -> _Golden:
        """Return what torch trains, made for microbatches like the first one."""
        if self._golden is None:
            assert batch is not None
            part = self._request.part(batch)
            found = {id(tensor): path for path, tensor in part.named_parameters()}
            own = self._request.named()
            paths = {name: found[id(item)] for name, item in own.items() if item.requires_grad}
            with self._trainer.before.within(part):
                trainer = GoldenTrainer(part, paths.values())
            made = self._request.updates(paths)
            optimizer = None if made is None else GoldenOptimizer(made)
            self._golden = _Golden(trainer, optimizer, paths, batch.names)
            self.written()
        return self._golden

    def _compare(self, what: str, golden: torch.Tensor, found: torch.Tensor) -> None:
        self._watched.rule.require(f"device '{self._request.device()}': {what}", golden, found)
