"""Modules: what is placed on a device, in the API's own operators, in torch or in ONNX."""

from __future__ import annotations

import queue
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sambahost.compiled_step import AnyPart
from sambahost.keras import KerasModule
from sambahost.models import held, structure_of
from sambahost.onnx_part import OnnxPart

from .device import Device, current
from .errors import PyBudaError, as_own
from .parameter import Parameter
from .placeable import Placeable
from .recorded import RecordedModule
from .run import run_module
from .tensor import SomeTensor, Tensor, require_shape, to_torch

if TYPE_CHECKING:
    import onnx


class Module(Placeable):
    """A workload for one device."""

    def get_device(self) -> Device | None:
        """Return the device that this is placed on, or computes the loss of, None for none."""
        holds = (each for each in current().devices if self in (*each.modules, each.loss))
        return next(holds, None)

    def run(self, *args: SomeTensor) -> list[Tensor]:
        """Return the outputs for one microbatch, on a device of its own."""
        return run_module(self, args)


class _Wrapped(Module):
    """What is wrapped, with parameters of its own names."""

    def get_parameters(self) -> list[Parameter]:
        """Return the parameters, by the names of what is wrapped, with copies of values."""
        return [
            Parameter(tensor.detach().clone(), requires_grad=tensor.requires_grad, name=name)
            for name, tensor in self.parameters_by_name().items()
        ]


class PyTorchModule(_Wrapped):
    """A torch module. A CPU runs it as it is; for the device it is compiled.

    `redirect_forward` changes nothing: `forward` of the torch module is never replaced.
    """

    def __init__(self, name: str, module: torch.nn.Module, redirect_forward: bool = True) -> None:
        super().__init__(name)
        _require_kind(self, module, torch.nn.Module, "a torch.nn.Module was expected")
        self.module = module

    def forward(self, *args: SomeTensor, **kwargs: SomeTensor) -> object:
        """Return what the torch module returns."""
        named = {name: to_torch(value) for name, value in kwargs.items()}
        return self.module(*map(to_torch, args), **named)

    def backward(self, *args: tuple[SomeTensor, SomeTensor]) -> None:
        """Add up gradients: of outputs of `forward`, each beside the gradient that it gets."""
        for output, gradient in args:
            to_torch(output).backward(to_torch(gradient))  # type: ignore[no-untyped-call]  # torch's

    def set_parameters(self, **kwargs: SomeTensor) -> None:
        """Overwrite parameters, by name; none if one is unknown or has another shape."""
        known = dict(self.module.named_parameters())
        _require_known(kwargs, known, self.name)
        given = {name: to_torch(value) for name, value in kwargs.items()}
        for name, value in given.items():
            require_shape(name, known[name].shape, value)
        with torch.no_grad():
            for name, value in given.items():
                known[name].copy_(value)

    def add_parameter(self, name: str, parameter: Parameter, prepend_name: bool = False) -> None:
        """Register a parameter with the torch module; `prepend_name` puts this name before it."""
        _require_kind(self, parameter, Parameter, "a pybuda.Parameter was expected")
        whole = f"{self.name}_{name}" if prepend_name else name
        self.module.register_parameter(whole, parameter.in_torch())

    def part(self) -> AnyPart:
        """Return the torch module."""
        return self.module

    def _tensors(self) -> Iterable[torch.Tensor]:
        return (*self.module.parameters(), *self.module.buffers())

    def owners(self) -> Iterable[object]:
        """Return the modules that the torch module is made of."""
        return self.module.modules()

    def _structure(self, objects: bool = True) -> object:
        """Return what is another one after modules in it or attributes have changed."""
        return structure_of(self.module, objects)

    def parameters_by_name(self) -> Mapping[str, torch.nn.Parameter]:
        """Return the parameters, by the names that torch has for them."""
        return dict(self.module.named_parameters())

    def on_host(self) -> torch.nn.Module:
        """Return the torch module."""
        return self.module


class TFModule(PyTorchModule):
    """A model of Keras, which TensorFlow runs on a `CPUDevice`; its variables train there.

    Raises `PyBudaError` where TensorFlow is not installed, and for what is no `tf.keras.Model`.
    """

    def __init__(self, name: str, module: object) -> None:
        with as_own(f"TFModule '{name}': "):
            super().__init__(name, KerasModule(module))

    call = PyTorchModule.forward

    def part(self) -> AnyPart:
        """Raise `PyBudaError`: the device does not run it."""
        raise PyBudaError(
            f"'{self.name}' is a model of TensorFlow; place it on a CPUDevice, or export it to ONNX"
        )


class OnnxModule(_Wrapped):
    """An ONNX model, which only the device runs; it trains its initializers, by their names.

    Who changes a large initializer after it was compiled has to wrap the model anew.
    """

    def __init__(self, name: str, module: onnx.ModelProto, onnx_path: str | Path = "") -> None:
        import onnx  # here: whoever has such a model has imported it

        super().__init__(name)
        _require_kind(
            self, module, onnx.ModelProto, "an onnx.ModelProto was expected (onnx.load reads one)"
        )
        self.module = module
        self.onnx_path = onnx_path
        self._part = OnnxPart(module)

    def part(self) -> AnyPart:
        """Return the model."""
        return self._part

    def owners(self) -> Iterable[object]:
        """Return this module, and what reads the model."""
        return self, self._part

    def _structure(self, objects: bool = True) -> object:
        return self._part.mark()

    def parameters_by_name(self) -> Mapping[str, torch.nn.Parameter]:
        """Return what trains, by the names of initializers. Raises `sambac.CompileError`."""
        return dict(self._part.named_parameters())

    def on_host(self) -> torch.nn.Module:
        """Raise `PyBudaError`: torch cannot run it."""
        raise PyBudaError(f"'{self.name}' is an ONNX model; place it on a TTDevice")


class PyBudaModule(Module):
    """The base of modules in operators of `pybuda.op`: subclasses have a `forward`.

    Parameters and modules that are assigned to attributes, alone or in lists and dictionaries, are
    parts of it.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._parameters: dict[str, Parameter] = {}
        self._constants: dict[str, Tensor | None] = {}
        self._constant_shapes: dict[str, tuple[int, ...] | None] = {}
        self._modules: dict[str, PyBudaModule] = {}
        self._tapouts: dict[str, queue.Queue[object]] = {}

    @abstractmethod
    def forward(self, *args: Any, **kwargs: Any) -> Tensor | tuple[Tensor, ...]:
        """Return the outputs for inputs."""

    def pre_forward(self, *args: Tensor, **kwargs: Tensor) -> None:
        """Do what is needed before `forward`: nothing, unless a subclass says so."""

    def __call__(self, *args: Tensor, **kwargs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return what `forward` returns."""
        self.pre_forward(*args, **kwargs)
        return self.forward(*args, **kwargs)

    def __setattr__(self, attribute: str, value: object) -> None:
        object.__setattr__(self, attribute, value)
        if attribute.startswith("_") or not isinstance(value, _PARTS):
            return
        if not hasattr(self, "_modules"):
            raise PyBudaError(f"{type(self).__name__} sets '{attribute}' before super().__init__()")
        self._parameters.pop(attribute, None)
        self._adopt(attribute, value)

    def add_parameter(self, name: str, parameter: Parameter, prepend_name: bool = False) -> None:
        """Make `parameter` the one called `name`; `prepend_name` puts the module's before it.

        Raises `PyBudaError` if the name is taken.
        """
        if self._parameters.get(name, parameter) is not parameter:
            raise PyBudaError(f"module '{self.name}' has a parameter '{name}' already")
        self._parameters[name] = parameter
        if parameter.get_name() is None:
            parameter._name = f"{self.name}.{name}" if prepend_name else name

    def get_parameter(self, name: str) -> Parameter:
        """Return the parameter of this name, short or whole. Raises `PyBudaError` for none."""
        known = self._by_name()
        _require_known([name], known, self.name)
        return known[name]

    def get_parameters(self, submodules: bool = True) -> list[Parameter]:
        """Return the parameters, each once, of submodules too unless they are left out."""
        found = {id(parameter): parameter for parameter in self._parameters.values()}
        for module in self._modules.values() if submodules else ():
            found.update((id(parameter), parameter) for parameter in module.get_parameters())
        return [*found.values()]

    def set_parameter(self, name: str, data: SomeTensor) -> None:
        """Give the parameter of this name values. Raises `PyBudaError` for an unknown one."""
        self.get_parameter(name).set_value(data)

    def load_parameter_dict(self, data: Mapping[str, SomeTensor]) -> None:
        """Give all parameters of `data` their values; none if one is unknown or does not fit."""
        known = self._by_name()
        _require_known(data, known, self.name)
        for name, value in data.items():
            known[name].require_fits(value)
        for name, value in data.items():
            known[name].set_value(value)

    def add_constant(
        self, name: str, prepend_name: bool = False, shape: tuple[int, ...] | None = None
    ) -> None:
        """Declare a constant, of a shape or of any, which `set_constant` gives a value.

        `prepend_name` is taken and changes nothing: constants are asked for by `name`.
        """
        if name in self._constants:
            raise PyBudaError(f"module '{self.name}' has a constant '{name}' already")
        self._constants[name] = None
        self._constant_shapes[name] = None if shape is None else tuple(shape)

    def set_constant(self, name: str, data: SomeTensor) -> None:
        """Give a constant its value. Raises `PyBudaError` for one that was not added."""
        _require_known([name], self._constants, self.name, "constant")
        value, shape = to_torch(data).clone(), self._constant_shapes[name]
        if shape not in (None, tuple(value.shape)):
            raise PyBudaError(f"constant '{name}' is {[*shape]}, a tensor of {[*value.shape]} came")
        self._constants[name] = Tensor(value)

    def get_constant(self, name: str) -> Tensor:
        """Return the value of a constant. Raises `PyBudaError` if it has none."""
        _require_known([name], self._constants, self.name, "constant")
        if (found := self._constants[name]) is None:
            raise PyBudaError(f"constant '{name}' of '{self.name}' has no value; set_constant")
        return found

    def insert_tapout_queue_for_op(
        self, op_name: str, output_index: int = 0
    ) -> queue.Queue[object]:
        """Return a queue that gets what an operator gives in inference: a tensor a microbatch.

        What runs is ended. Raises `PyBudaError` for another output than 0, the only one.
        """
        if output_index != 0:
            raise PyBudaError(f"output_index is {output_index}; an operator has one output, 0")
        if device := self.get_device():
            device.changed()
        return self._tapouts.setdefault(op_name, queue.Queue())

    def tapped(self) -> Mapping[str, queue.Queue[object]]:
        """Return the queues that get what operators give, of submodules too."""
        found = dict(self._tapouts)
        for module in self._modules.values():
            found.update(module.tapped())
        return found

    def part(self) -> AnyPart:
        """Return a torch module that computes the same."""
        return RecordedModule(self)

    def _tensors(self) -> Iterable[torch.Tensor | None]:
        parameters = (p.value() if p.has_value() else None for p in self.get_parameters())
        return (*parameters, *self._constant_values())

    def owners(self) -> Iterable[object]:
        """Return this module, those in it, and their parameters and constants."""
        yield self
        yield from (*self._parameters.values(), *filter(None, self._constants.values()))
        for module in self._modules.values():
            yield from module.owners()

    def _structure(self, objects: bool = True) -> object:
        """Return what is another one after modules in it or attributes have changed."""
        own = {name: value for name, value in vars(self).items() if name not in _COUNTED}
        inner = [module._structure(objects) for module in self._modules.values()]
        formats = [each.dev_data_format for each in self._parameters.values()]
        return [*self._modules.values()], formats, held(own, objects), inner

    def parameters_by_name(self) -> Mapping[str, torch.nn.Parameter]:
        """Return the parameters that have values, by their whole names."""
        found = (item for item in self.get_parameters() if item.has_value())
        return {str(item.get_name()): item.in_torch() for item in found}

    def on_host(self) -> torch.nn.Module:
        """Raise `PyBudaError`: the original runs PyTorch and TensorFlow there alone."""
        raise PyBudaError(f"'{self.name}' is a PyBuda module; a CPUDevice runs PyTorch modules")

    def _constant_values(self) -> Iterator[torch.Tensor]:
        yield from (constant.value() for constant in self._constants.values() if constant)
        for module in self._modules.values():
            yield from module._constant_values()

    def _by_name(self) -> dict[str, Parameter]:
        """Return the parameters by what they are called here, and by their whole names."""
        whole = {str(item.get_name()): item for item in reversed(self.get_parameters())}
        return {**whole, **self._parameters}

    def _adopt(self, attribute: str, value: object) -> None:
        """Make parameters and modules in `value` parts of this one."""
        if isinstance(value, Parameter):
            self.add_parameter(attribute, value, prepend_name=True)
        elif isinstance(value, PyBudaModule):
            self._modules[attribute] = value
        elif isinstance(value, Mapping):
            for key, item in value.items():
                self._adopt(f"{attribute}.{key}", item)
        elif isinstance(value, list | tuple):
            for index, item in enumerate(value):
                self._adopt(f"{attribute}.{index}", item)


_COUNTED = ("_parameters", "_constants", "_constant_shapes", "_modules", "_tapouts")
"""Attributes of all PyBuda modules, which are looked at in other ways."""
_PARTS = (Parameter, PyBudaModule, Mapping, list, tuple)
"""What parts of a module may be, or be in."""


def _require_kind(own: Module, given: object, kind: type, words: str) -> None:
    """Raise `PyBudaError` for what a module cannot be made of."""
    if not isinstance(given, kind):
        raise PyBudaError(
            f"{type(own).__name__} '{own.name}' got a {type(given).__name__}; {words}"
        )


def _require_known(
    names: Iterable[str], known: Iterable[str], module: str, what: str = "parameter"
) -> None:
    """Raise `PyBudaError` for names that are not `known`."""
    there = [*known]
    unknown = [name for name in names if name not in there]
    if unknown:
        raise PyBudaError(
            f"module '{module}' has no {what} {', '.join(unknown)}; it has "
            f"{', '.join(there) or 'none'}"
        )
