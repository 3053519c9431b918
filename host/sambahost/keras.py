"""Models of Keras as torch modules: TensorFlow runs them, and torch's autograd goes through."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .errors import HostError


class KerasModule(nn.Module):
    """Runs a model of TensorFlow on the host, whose trainable variables are parameters here.

    TensorFlow is imported when the first one is made. Raises `HostError` where it is not installed,
    and for what is no `tf.keras.Model`, or one that has no variables yet.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        try:
            self._tf = importlib.import_module("tensorflow")
        except ImportError as error:
            raise HostError(
                "TensorFlow is not installed, and its modules need it: pip install tensorflow, or "
                "export the model to ONNX"
            ) from error
        if not isinstance(model, self._tf.keras.Model):
            raise HostError(f"a {type(model).__name__} came; a tf.keras.Model was expected")
        if not model.built:
            raise HostError("the model has no variables yet; call it once, or its build")
        self._model = model
        for index, variable in enumerate(model.trainable_variables):
            name = str(getattr(variable, "path", variable.name)).replace(".", "_")
            value = torch.from_numpy(variable.numpy().copy())
            self.register_parameter(name if name not in self._parameters else f"{name}_{index}",
                                    nn.Parameter(value))  # fmt: skip

    def forward(self, *inputs: Tensor, **named: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs, without structure, of inputs in order and by their names in Keras."""
        given = (*inputs, *named.values())
        found: tuple[Tensor, ...] = _Taped.apply(
            self, tuple(named), len(given), *given, *self.parameters()
        )  # type: ignore[no-untyped-call]
        return found

    def write(self) -> None:
        """Give the variables of the model the values of the parameters."""
        for variable, value in zip(self._model.trainable_variables, self.parameters(), strict=True):
            variable.assign(value.detach().numpy())

    def run(
        self, names: Sequence[str], inputs: Sequence[Tensor], values: Sequence[Tensor]
    ) -> tuple[Any, Any, Any]:
        """Return the tape, what it watches, and the outputs, all of TensorFlow.

        The last `inputs` have `names`.
        """
        tf, variables = self._tf, self._model.trainable_variables
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value.detach().numpy())
        given = [tf.convert_to_tensor(tensor.detach().numpy()) for tensor in inputs]
        has_modes = "training" in inspect.signature(self._model.call).parameters
        mode = {"training": self.training} if has_modes else {}
        with tf.GradientTape() as tape:
            for tensor in given:
                if tensor.dtype.is_floating:
                    tape.watch(tensor)
            ordered, last = given[: len(given) - len(names)], given[len(given) - len(names) :]
            named = dict(zip(names, last, strict=True))
            outputs = tf.nest.flatten(self._model(*ordered, **named, **mode))
        return tape, [*given, *variables], outputs


class _Taped(torch.autograd.Function):
    """A forward pass of TensorFlow, and the backward pass of its tape."""

    @staticmethod
    def forward(
        ctx: Any, module: KerasModule, names: Sequence[str], count: int, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.tape, ctx.watched, ctx.outputs = module.run(names, tensors[:count], tensors[count:])
        ctx.convert = module._tf.convert_to_tensor
        return tuple(torch.from_numpy(output.numpy().copy()) for output in ctx.outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        starts = [ctx.convert(gradient.numpy()) for gradient in gradients]
        found = ctx.tape.gradient(ctx.outputs, ctx.watched, output_gradients=starts)
        back = (None if g is None else torch.from_numpy(g.numpy().copy()) for g in found)
        return (None, None, None, *back)
