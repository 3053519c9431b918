"""Training of torch modules on the host, in place: torch's own autograd and optimizers.

A pass goes forward, and backward from gradients that come later.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from pef.warned import warn

from .chains import Chain, Graded
from .samples import Gradients, Samples, Tensors


@dataclass(frozen=True)
class HostPass:
    """What went forward: inputs and outputs, with torch's graph between them."""

    inputs: Tensors
    outputs: Tensors

    @classmethod
    def of(
        cls, function: Callable[[Tensors], Tensors], given: Sequence[torch.Tensor], wanted: bool
    ) -> HostPass:
        """Run `function`, in whatever mode the caller is; inputs get gradients if `wanted`."""
        with torch.inference_mode(False), torch.enable_grad():
            inputs = tuple(
                tensor.detach().requires_grad_(wanted and tensor.is_floating_point())
                for tensor in given
            )
            # What works in place may not on what gets a gradient.
            return cls(inputs, function(tuple(t.clone() if wanted else t for t in inputs)))

    def backward(self, starts: Gradients | None, retain_graph: bool = False) -> Gradients:
        """Add up the gradients of parameters, and return those of inputs.

        `starts` are those of outputs; without them losses start from ones.
        """
        ones = tuple(torch.ones_like(output) for output in self.outputs)
        pairs = [
            (output, start)
            for output, start in zip(self.outputs, starts or ones, strict=True)
            if output.requires_grad and start is not None
        ]
        if pairs:
            outputs, gradients = zip(*pairs, strict=True)
            torch.autograd.backward(outputs, gradients, retain_graph=retain_graph)
        return tuple(tensor.grad for tensor in self.inputs)


@dataclass(frozen=True)
class HostRequest:
    """What trains: modules in order, the loss behind them, and what updates parameters, by name.

    `device` is a name for messages, `raises` makes errors from sentences. Nobody wants gradients of
    the inputs of the `first` device, which `converted` makes of those that come. `retain_graph`
    keeps torch's graphs after a backward pass.
    """

    device: str
    modules: Sequence[torch.nn.Module]
    loss: torch.nn.Module | None
    parameters: Mapping[str, torch.nn.Parameter]
    optimizer: torch.optim.Optimizer | None
    scheduler: torch.optim.lr_scheduler.LRScheduler | None
    first: bool
    converted: Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]
    retain_graph: bool
    raises: Callable[[str], Exception]


class HostTrainer:
    """Trains parameters in place, by forward passes whose backward passes may come much later."""

    def __init__(self, request: HostRequest) -> None:
        if isinstance(request.scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            raise request.raises(
                f"the scheduler of device '{request.device}' is a ReduceLROnPlateau, which steps "
                "by a metric, and no step here has one; step it by hand between runs"
            )
        if request.optimizer is not None and not _steps_alone(request.optimizer):
            raise request.raises(
                f"the optimizer of device '{request.device}' is of type "
                f"{type(request.optimizer).__name__}, which steps by a closure that computes the "
                "loss anew, and no step here has one; take one that steps by gradients"
            )
        self._request = request
        self._passed: deque[HostPass] = deque()

    def prepare(self, batch: Samples, targets: Samples | None) -> Samples | None:
        """Return None: what modules give is known when they run, which may change them."""
        return None

    def forward(self, batch: Samples, targets: Samples | None) -> Tensors:
        """Return the outputs of the last module, or the losses, for a microbatch."""
        asked = self._request
        for module in (*asked.modules, *filter(None, (asked.loss,))):
            if not module.training:
                module.train()
        chain = Chain(asked.modules, asked.raises, batch.names) if asked.modules else None

        def run(tensors: Tensors) -> Tensors:
            given = asked.converted(tensors)
            if asked.loss is None:
                return () if chain is None else chain(*given)
            wanted = () if targets is None else targets.tensors
            losses: Tensors = Graded(chain, asked.loss, len(given), asked.raises)(*given, *wanted)
            self._require_numbers(losses)
            return losses

        self._passed.append(HostPass.of(run, batch.tensors, not asked.first))
        return tuple(output.detach() for output in self._passed[-1].outputs)

    def told(self, losses: Tensors) -> object:
        """Return a tuple of numbers."""
        return tuple(loss.item() for loss in losses)

    def _require_numbers(self, losses: Sequence[torch.Tensor]) -> None:
        for loss in losses:
            if loss.numel() != 1:
                raise self._request.raises(
                    f"the loss on device '{self._request.device}' is {[*loss.shape]}; one number "
                    "was expected"
                )

    def backward(self, gradients: Gradients | None) -> Gradients:
        """Run the backward pass of the oldest forward pass that waits for it."""
        if not self._passed:
            raise self._request.raises(
                f"device '{self._request.device}' is to run backward more often than it ran forward"
            )
        return self._passed.popleft().backward(gradients, self._request.retain_graph)

    def zero_gradients(self) -> None:
        """Let gradients add up from zero."""
        for parameter in self._request.parameters.values():
            parameter.grad = None

    def optimize(self) -> None:
        """Update the parameters. Without an optimizer, or without any gradient, warn."""
        optimizer, device = self._request.optimizer, f"device '{self._request.device}'"
        if optimizer is not None:
            steps = [item for group in optimizer.param_groups for item in group["params"]]
            train = [item for item in steps if item.requires_grad]
            if train and all(item.grad is None for item in train):
                warn(
                    f"{device} steps its optimizer, and no parameter has a gradient: they stay as "
                    "they are; a backward pass comes first"
                )
            optimizer.step()
        elif any(parameter.requires_grad for parameter in self._request.parameters.values()):
            warn(
                f"{device} has no optimizer: its parameters stay as they are; give it an "
                "optimizer_f"
            )

    def schedule(self) -> None:
        """Step the learning rate, where there is a scheduler."""
        if self._request.scheduler is not None:
            self._request.scheduler.step()

    def parameters(self) -> Mapping[str, torch.Tensor]:
        """Return copies of all parameters, by name."""
        return {name: item.detach().clone() for name, item in self._request.parameters.items()}

    def gradients(self) -> Mapping[str, torch.Tensor]:
        """Return copies of the gradients so far, zeros where none has come."""
        return {
            name: torch.zeros_like(item) if item.grad is None else item.grad.clone()
            for name, item in self._request.parameters.items()
            if item.requires_grad
        }

    def update(self, values: Mapping[str, torch.Tensor]) -> None:
        """Overwrite parameters, by name; names of others are left."""
        own = self._request.parameters
        known = {name: value for name, value in values.items() if name in own}
        for name, value in known.items():
            require_shape(name, own[name].shape, value, self._request.raises)
        with torch.no_grad():
            for name, value in known.items():
                own[name].copy_(value)

    def written(self) -> Sequence[object]:
        """Return nothing: what the program writes is what trains."""
        return ()

    def take(self, values: Sequence[object]) -> None:
        """Do nothing: nothing was written elsewhere."""

    def begin(self) -> None:
        """Forget forward passes whose backward passes have not come."""
        self._passed.clear()


def _steps_alone(optimizer: torch.optim.Optimizer) -> bool:
    """Tell whether `step` can be called without arguments.

    The class is asked: what a scheduler puts in the place of the method has its arguments and more.
    """
    try:
        inspect.signature(type(optimizer).step).bind(optimizer)
    except TypeError:
        return False
    return True


def require_shape(
    name: object, shape: Sequence[int], value: torch.Tensor, raises: Callable[[str], Exception]
) -> None:
    """Raise what `raises` makes unless `value` has the shape of the parameter called `name`."""
    if tuple(value.shape) != tuple(shape):
        raise raises(f"parameter '{name}' is {[*shape]}, a tensor of {[*value.shape]} came")
