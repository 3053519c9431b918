"""What torch computes of modules with values of the caller: forward, and backward from there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from pef.wording import did_you_mean

from .errors import HostError
from .models import detached, in_mode, running
from .samples import Samples, Tensors, joined


class HostEvaluation:
    """A forward pass of `part`, whose backward pass may follow.

    `own` are its parameters by name. Those that `values` has take these for the pass, others and
    buffers stay as they are. With `by_sample` each sample of a microbatch is computed by itself.
    Raises `HostError` for names that are not there, and for values of other shapes.
    """

    def __init__(
        self,
        part: nn.Module,
        own: Mapping[str, nn.Parameter],
        values: Mapping[str, Tensor],
        *,
        by_sample: bool,
        training: bool,
    ) -> None:
        self._part = part
        self._values = values
        self._by_sample = by_sample
        self._training = training
        if unknown := [name for name in values if name not in own]:
            raise HostError(
                f"there is no parameter '{unknown[0]}'{did_you_mean(unknown[0], own)}; there are "
                f"{', '.join(own) or 'none'}"
            )
        odd = [name for name, value in values.items() if value.shape != own[name].shape]
        if odd:  # torch might broadcast them
            raise HostError(
                f"parameter '{odd[0]}' is {[*own[odd[0]].shape]}, a value of "
                f"{[*values[odd[0]].shape]} came"
            )
        paths = {id(tensor): path for path, tensor in part.named_parameters()}
        self._given = {paths[id(own[n])]: v for n, v in values.items() if id(own[n]) in paths}
        self._inputs: Tensors = ()
        self._outputs: Tensors = ()

    def forward(self, batch: Samples) -> Tensors:
        """Return the outputs, or losses, for a microbatch of inputs and targets."""
        samples = batch.samples() if self._by_sample else [batch.tensors]
        with in_mode(self._part, training=self._training), torch.enable_grad():
            found = [self._run(sample) for sample in samples]
        self._inputs = batch.tensors
        self._outputs = joined(found) if self._by_sample else found[0]
        return detached(self._outputs)

    def backward(self, starts: Sequence[Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Return the gradients of inputs and of values that require some.

        `starts` are those of the outputs that have one, or none at all for ones.
        """
        ends = [output for output in self._outputs if output.requires_grad]
        starts = [*starts] or [torch.ones_like(output) for output in ends]
        shapes, wanted_shapes = ([[*t.shape] for t in each] for each in (starts, ends))
        if shapes != wanted_shapes:
            raise HostError(
                f"gradients of shapes {shapes} came for outputs that take some of {wanted_shapes}"
            )
        names = [name for name, value in self._values.items() if value.requires_grad]
        inputs = [tensor for tensor in self._inputs if tensor.requires_grad]
        wanted = [*inputs, *(self._values[name] for name in names)]
        found: Tensors = tuple(map(torch.zeros_like, wanted))
        if wanted and ends:
            found = torch.autograd.grad(
                ends, wanted, starts, allow_unused=True, materialize_grads=True
            )
        return [*found[: len(inputs)]], dict(zip(names, found[len(inputs) :], strict=True))

    def _run(self, sample: Tensors) -> Tensors:
        buffers = {name: tensor.clone() for name, tensor in self._part.named_buffers()}
        with running(self._part, sample):
            found: Tensors = torch.func.functional_call(
                self._part, {**buffers, **self._given}, sample
            )
        return found


def read_by(part: nn.Module, sample: Sequence[Tensor]) -> set[int]:
    """Return the ids of the parameters that `part` reads when it runs on a sample."""
    found: set[int] = set()
    own = {id(parameter) for parameter in part.parameters()}

    class Noting(torch.overrides.TorchFunctionMode):
        """Notes which parameters are given to functions of torch."""

        def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # torch's
            leaves = torch.utils._pytree.tree_leaves((args, kwargs))
            found.update(own & {*map(id, leaves)})
            return function(*args, **(kwargs or {}))

    with in_mode(part, training=False), torch.enable_grad(), Noting():
        part(*sample)
    return found


@contextmanager
def noting_calls() -> Iterator[set[int]]:
    """Give the ids of the modules that run meanwhile."""
    found: set[int] = set()
    hook = register_module_forward_hook(lambda module, _given, _output: found.add(id(module)))
    try:
        yield found
    finally:
        hook.remove()
