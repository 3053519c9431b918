"""Training on a `CPUDevice`: torch's own autograd and optimizers, on whole microbatches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

import torch

from pef.warned import warn
from pybuda.errors import PyBudaError
from pybuda.microbatch import Microbatch
from pybuda.placeable import Placeable
from pybuda.recorded import Chain, Graded
from pybuda.tensor import require_shape

from .trainer import Gradients, Workload

MakesOptimizer: TypeAlias = "Callable[[torch.nn.Module], torch.optim.Optimizer]"
MakesScheduler: TypeAlias = (
    "Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]"
)
Converts: TypeAlias = "Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]"


_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


class _Graph(NamedTuple):
    """Inputs and outputs of a forward pass, with torch's graph between them."""

    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...]


class HostSettings(NamedTuple):
    """What a `CPUDevice` was made with, for training.

    `converted` gives the inputs of modules from those that came.
    """

    optimizer_f: MakesOptimizer | None
    scheduler_f: MakesScheduler | None
    retain_graph: bool
    converted: Converts


class HostTrainer:
    """Trains torch modules in place.

    Raises `PyBudaError` if functions of the program make no optimizer, or no scheduler, of torch.
    """

    def __init__(self, workload: Workload, settings: HostSettings) -> None:
        self.work = workload
        self._settings = settings
        self._modules = [module.on_host() for module in workload.modules]
        self._loss = None if workload.loss is None else workload.loss.on_host()
        self._own = _by_name(workload.modules)
        self._passed: deque[_Graph] = deque()
        self._optimizer: torch.optim.Optimizer | None = None
        self._scheduler: torch.optim.lr_scheduler.LRScheduler | None = None
        if self._own:
            module = self._modules[0] if len(self._modules) == 1 else Chain(self._modules)
            self._optimizer = self._made(
                "optimizer_f", settings.optimizer_f, module, torch.optim.Optimizer
            )
        if self._optimizer is not None:
            kind = torch.optim.lr_scheduler.LRScheduler
            self._scheduler = self._made("scheduler_f", settings.scheduler_f, self._optimizer, kind)

    def prepare(self, batch: Microbatch, targets: Microbatch | None) -> Microbatch | None:
        """Return None: what modules give is known when they run, which may change them."""
        return None

    def forward(self, batch: Microbatch, targets: Microbatch | None) -> tuple[torch.Tensor, ...]:
        """Return the outputs of the last module, or the losses, for a microbatch."""
        for module in (*self._modules, *filter(None, (self._loss,))):
            if not module.training:
                module.train()
        with torch.inference_mode(False), torch.enable_grad():  # in whatever mode the caller is
            passed = self._graph(batch, targets)
        self._passed.append(passed)
        return tuple(output.detach() for output in passed.outputs)

    def _graph(self, batch: Microbatch, targets: Microbatch | None) -> _Graph:
        inputs = tuple(self._leaf(tensor) for tensor in batch.tensors)
        chain = Chain(self._modules, batch.names) if self._modules else None
        # A module that works in place may not on what gets a gradient.
        given = self._settings.converted([t.clone() if t.requires_grad else t for t in inputs])
        if self._loss is None:
            outputs = () if chain is None else chain(*given)
        else:
            wanted = () if targets is None else targets.tensors
            outputs = Graded(chain, self._loss, len(given))(*given, *wanted)
            self._require_numbers(outputs)
        return _Graph(inputs, outputs)

    def told(self, losses: tuple[torch.Tensor, ...]) -> object:
        """Return a tuple of numbers."""
        return tuple(loss.item() for loss in losses)

    def backward(self, gradients: Gradients | None) -> Gradients:
        """Run torch's backward pass of the oldest microbatch that waits for it."""
        if not self._passed:
            raise PyBudaError(
                f"device '{self.work.device}' is to run backward more often than it ran forward"
            )
        inputs, outputs = self._passed.popleft()
        starts = (None,) * len(outputs) if gradients is None else gradients
        pairs = [
            (output, gradient)
            for output, gradient in zip(outputs, starts, strict=True)
            if output.requires_grad and (gradients is None or gradient is not None)
        ]
        if pairs:
            torch.autograd.backward(
                [output for output, _ in pairs],
                [gradient for _, gradient in pairs],
                retain_graph=self._settings.retain_graph,
            )
        return tuple(tensor.grad for tensor in inputs)

    def zero_gradients(self) -> None:
        """Let gradients add up from zero."""
        for parameter in self._own.values():
            parameter.grad = None

    def optimize(self) -> None:
        """Update the parameters. Without an optimizer, warn."""
        if self._optimizer is not None:
            self._optimizer.step()
        elif any(parameter.requires_grad for parameter in self._own.values()):
            warn(
                f"device '{self.work.device}' has no optimizer: its parameters stay as they are; "
                "give it an optimizer_f"
            )

    def schedule(self) -> None:
        """Step the learning rate, where there is a scheduler."""
        if self._scheduler is not None:
            self._scheduler.step()

    def parameters(self) -> Mapping[str, torch.Tensor]:
        """Return copies of all parameters, by name."""
        return named_on_host(self.work.modules)

    def gradients(self) -> Mapping[str, torch.Tensor]:
        """Return copies of the gradients so far, zeros where none has come."""
        return {
            name: torch.zeros_like(item) if item.grad is None else item.grad.clone()
            for name, item in self._own.items()
            if item.requires_grad
        }

    def update(self, values: Mapping[str, torch.Tensor]) -> None:
        """Overwrite parameters, by name; names of others are left, as in the original."""
        known = {name: value for name, value in values.items() if name in self._own}
        for name, value in known.items():
            require_shape(name, self._own[name].shape, value)
        with torch.no_grad():
            for name, value in known.items():
                self._own[name].copy_(value)

    def begin(self) -> None:
        """Forget forward passes whose backward passes have not come."""
        self._passed.clear()

    def _leaf(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return an input, which gets a gradient where the device before wants it."""
        wanted = not self.work.first and tensor.is_floating_point()
        return tensor.detach().requires_grad_(wanted)

    def _require_numbers(self, losses: Sequence[torch.Tensor]) -> None:
        for loss in losses:
            if loss.numel() != 1:
                raise PyBudaError(
                    f"the loss on device '{self.work.device}' is {[*loss.shape]}; one number was "
                    "expected"
                )

    def _made(
        self,
        what: str,
        function: Callable[[_Given], _Made] | None,
        given: _Given,
        kind: type[_Made],
    ) -> _Made | None:
        """Return what a function of the program makes. Raises `PyBudaError` for another type."""
        found: object = None if function is None else function(given)
        if function is not None and not isinstance(found, kind):
            raise PyBudaError(
                f"{what} of device '{self.work.device}' returned a {type(found).__name__}; one "
                f"torch {kind.__name__} was expected"
            )
        return found if isinstance(found, kind) else None


def named_on_host(modules: Sequence[Placeable]) -> dict[str, torch.Tensor]:
    """Return copies of all parameters, by the names that they have on a CPU."""
    return {name: item.detach().clone() for name, item in _by_name(modules).items()}


def _by_name(modules: Sequence[Placeable]) -> dict[str, torch.nn.Parameter]:
    """Return the parameters by name, after that of their module where there are several."""
    return {
        name if len(modules) == 1 else f"{module.get_name()}.{name}": parameter
        for module in modules
        for name, parameter in module.parameters_by_name().items()
    }
