"""Images of devices: programs with their weights, and what a device has to know, as data."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NoReturn

import torch

from pef.foreign import reading, why
from sambahost.compiled_step import CompiledStep, first_values
from sambahost.program_bundle import read_bundle, write_bundle
from sambahost.sample_trainer import Compiles
from sambahost.samples import Samples
from sambahost.stages import StageProgram, StepPlace
from sambahost.trained_values import TrainedValues

from . import optimizers
from ._C import DataFormat
from ._C.backend_api import BackendDevice, BackendType
from .errors import PyBudaError, as_own
from .placeable import Placeable
from .training.on_device import DeviceRequest, compile_step

_FORMAT = 2
_PORTS = ("inputs", "names", "outputs")


@dataclass(frozen=True)
class StepSettings:
    """How an image trains: see `CompiledStep`; `first` says that nobody gets gradients of inputs.

    `trains` are the names of parameters, `optimizer` its type and settings by name.
    """

    inputs: tuple[int, ...]
    first: bool
    loss: str | None
    places: Mapping[str, StepPlace]
    trains: tuple[str, ...]
    buffers: tuple[StepPlace, ...]
    optimizer: Mapping[str, object] | None


@dataclass(frozen=True)
class TTDeviceImage:
    """A device that was compiled: `TTDevice.load_image` makes one of it, without the modules.

    `modules` are their names, `names` those of inputs if they came so, `configured` what the
    configuration asked for. `step` is None for an image of inference.
    """

    name: str
    arch: str
    devtype: str
    chip_ids: tuple[int, ...]
    fp32_fallback: str | None
    modules: tuple[str, ...]
    names: tuple[str, ...]
    configured: str
    stages: tuple[StageProgram, ...] = ()
    step: StepSettings | None = None
    microbatch_count: int = 1

    def __post_init__(self) -> None:
        """Raise `KeyError` for a device that there is not."""
        _ = BackendDevice[self.arch], BackendType[self.devtype], self.fallback

    @property
    def training(self) -> bool:
        """Whether it is an image for training."""
        return self.step is not None

    @property
    def fallback(self) -> DataFormat | None:
        """What the device holds float32 in on a Grayskull."""
        return None if self.fp32_fallback is None else DataFormat[self.fp32_fallback]

    def chips(self, others: Sequence[int] | None) -> Sequence[int]:
        """Return the chips, or `others`. Raises `PyBudaError` if these are not as many."""
        if others is not None and len(others) != len(self.chip_ids):
            raise PyBudaError(
                f"{len(others)} device_id_overrides came; the image is for "
                f"{len(self.chip_ids)} chips"
            )
        return self.chip_ids if others is None else others

    def get_input_shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of the inputs of one sample, in order."""
        first = self.stages[0]
        count = len(first.inputs) if self.step is None else self.step.inputs[0]
        return [tuple(item.shape) for item in first.zeros(first.inputs[:count])]

    def info(self) -> str:
        """Return what the image is of, a line for each thing that it says."""
        said = {**self._said(), "input shapes": self.get_input_shapes()}
        return "\n".join(f"{name}: {value}" for name, value in said.items() if name != "stages")

    def save_to_disk(self, path: str | os.PathLike[str]) -> None:
        """Write the image to a file, whole or not at all; make its folders. Raises `OSError`."""
        os.makedirs(os.path.dirname(os.path.realpath(path)), exist_ok=True)
        write_bundle(path, self._said(), [stage.program for stage in self.stages])

    @staticmethod
    def load_from_disk(path: str | os.PathLike[str]) -> TTDeviceImage:
        """Return the image in a file, all of which is verified.

        Raises `PyBudaError` for what is no image, a damaged one, or one of another version,
        `pef.PefError` for damaged programs, `OSError` for what cannot be read.
        """
        with as_own():
            said, programs = read_bundle(path)
        if said.get("format") != _FORMAT:
            raise PyBudaError(
                f"{path} is an image of format {said.get('format')}; this version reads format "
                f"{_FORMAT}: call compile_to_image again"
            )
        with reading(lambda error: PyBudaError(f"{path} is a damaged image: {why(error)}")):
            return _image(said, programs)

    from_disk = load_from_disk

    def placeables(self) -> tuple[list[Placeable], Placeable | None]:
        """Return what stands for the modules on a device, and for the loss."""
        found: list[Placeable] = [ImageModule(name, self) for name in self.modules]
        if self.step is None or self.step.loss is None:
            return found, None
        return found, ImageModule(self.step.loss, self, owner=not found)

    def optimizer(self) -> optimizers.Optimizer | None:
        """Return an optimizer like that of the device."""
        if self.step is None or self.step.optimizer is None:
            return None
        settings = {**self.step.optimizer}
        return optimizers.of_kind(str(settings.pop("type")), settings)

    def _said(self) -> dict[str, object]:
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        stages = [{key: getattr(stage, key) for key in _PORTS} for stage in self.stages]
        step = None if self.step is None else asdict(self.step)
        return {"format": _FORMAT, **plain, "step": step, "stages": stages}


class ImageModule(Placeable):
    """What stands for a module of an image on a device; the first has all parameters."""

    def __init__(self, name: str, image: TTDeviceImage, owner: bool | None = None) -> None:
        super().__init__(name)
        self.image = image
        owns = name == next(iter(image.modules), None) if owner is None else owner
        self.tensors = {}
        if owns and (step := image.step) is not None:
            self.tensors = first_values(image.stages, step.places, step.buffers, step.trains)

    def part(self) -> NoReturn:
        """Raise `PyBudaError`: it is compiled already, and nothing can be added to it."""
        raise PyBudaError(
            f"'{self.name}' came from an image, whose modules run by themselves; place others on "
            "another device"
        )

    def parameters_by_name(self) -> Mapping[str, torch.nn.Parameter]:
        """Return the parameters of an image that trains. Raises `PyBudaError` for others."""
        step = self.image.step
        if step is None:
            raise PyBudaError(
                f"'{self.name}' came from an image of inference, whose weights are inside of its "
                "programs; compile_to_image(training=True) keeps parameters"
            )
        found = {name: self.tensors.get(place) for name, place in step.places.items()}
        return {n: item for n, item in found.items() if isinstance(item, torch.nn.Parameter)}

    def on_host(self) -> NoReturn:
        """Raise `PyBudaError`: only the device runs it."""
        raise PyBudaError(f"'{self.name}' came from an image of a TTDevice, where alone it runs")


def image_of(modules: Sequence[Placeable], training: bool) -> TTDeviceImage | None:
    """Return the image that the modules of a device, and its loss, are; None for other modules.

    Raises `PyBudaError` where there are others beside them, and for an image of the other kind.
    """
    found = [module for module in modules if isinstance(module, ImageModule)]
    if not found:
        return None
    image = found[0].image
    if image.training is not training:
        kinds = ("training", "inference") if image.training else ("inference", "training")
        raise PyBudaError(
            f"device '{image.name}' came from an image of {kinds[0]}; "
            f"compile_to_image(training={training}) makes one of {kinds[1]}"
        )
    loss = [] if image.step is None or image.step.loss is None else [image.step.loss]
    if [module.get_name() for module in modules] != [*image.modules, *loss]:
        found[0].part()
    return image


def compiled_by(image: TTDeviceImage, modules: Sequence[Placeable], first: bool) -> Compiles:
    """Return what gives the training step of an image.

    Raises `PyBudaError` if the device before wants gradients and the step gives none.
    """
    step = image.step
    assert step is not None
    if step.first and not first:
        raise PyBudaError(
            f"device '{image.name}' was compiled as the first of its pipeline, and gives no "
            "gradients to the one before; compile the image where that is"
        )
    own = [item for module in modules if isinstance(module, ImageModule)
           for item in module.tensors.items()]  # fmt: skip

    def gives(batch: Samples, targets: Samples | None, before: TrainedValues) -> CompiledStep:
        known = before.values()
        later = {place: known[id(tensor)] for place, tensor in own if id(tensor) in known}
        places = {name: place for name, place in step.places.items() if place in dict(own)}
        return CompiledStep(image.stages, step.inputs, image.names, places, own, later)

    return gives


def with_step(
    image: TTDeviceImage,
    request: DeviceRequest,
    samples: tuple[Samples, Samples | None],
    before: TrainedValues,
) -> TTDeviceImage:
    """Return an image with a training step, compiled for inputs and targets like `samples`.

    Raises `PyBudaError` where there is a scheduler, and as compiling does.
    """
    if request.scheduler is not None:
        raise PyBudaError(
            f"an image holds no code, and a {type(request.scheduler).__name__} is that: make the "
            "device without it, and step one by hand on the optimizer of the loaded device"
        )
    step, own = compile_step(request, *samples, before), request.named()
    buffers = (place for place, item in step.tensors if not isinstance(item, torch.nn.Parameter))
    settings = StepSettings(
        tuple(step.inputs),
        request.work.first,
        None if request.work.loss is None else request.work.loss.get_name(),
        step.places,
        tuple(name for name in step.places if own[name].requires_grad),
        tuple(buffers),
        None if request.optimizer is None else request.optimizer.described(),
    )
    return replace(image, stages=tuple(step.made), step=settings)


def _image(said: dict[str, Any], programs: Sequence[Any]) -> TTDeviceImage:
    """Return the image that a file says. Raises anything where it says something else."""
    found = {each.name: _frozen(said[each.name]) for each in fields(TTDeviceImage)}
    stages = tuple(
        StageProgram(program, *(_frozen(stage[key]) for key in _PORTS))
        for program, stage in zip(programs, said["stages"], strict=True)
    )
    for stage in stages:
        stage.zeros((*stage.inputs, *stage.outputs))
    step = said["step"]
    if step is not None:
        step = StepSettings(**{key: _frozen(value) for key, value in step.items()})
        places = {name: StepPlace(*place) for name, place in step.places.items()}
        buffers = tuple(StepPlace(*place) for place in step.buffers)
        step = replace(step, places=places, buffers=buffers)
        _ = [stages[places[name].stage] for name in step.trains]
    return TTDeviceImage(**{**found, "stages": stages, "step": step})


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
