"""A device that runs compiled programs."""

from __future__ import annotations

import os
import queue
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import torch

from pef.warned import warn
from sambahost.chains import Chain
from sambahost.golden import GoldenRule
from sambahost.golden_training import evaluated
from sambahost.models import Version
from sambahost.onnx_part import OnnxPart, of_one_sample
from sambahost.sample_runner import SampleRunner
from sambahost.samples import Samples, joined
from sambahost.trained_values import TrainedValues

from ._C import DataFormat
from ._C.backend_api import BackendDevice, BackendType, DeviceMode
from .config import UNSET, CompilerConfig, CompileSettings, compiler, warn_of_idle
from .device import chips_of, current
from .errors import PyBudaError, counted, require_kind
from .formats import held_as
from .image import TTDeviceImage, compiled_by, image_of, with_step
from .microbatch import Microbatch
from .optimizers import Optimizer
from .placeable import Placeable
from .recorded import RecordedModule
from .schedulers import LearningRateScheduler
from .stage import compiled, parts_of, run_settings
from .tensor import SomeTensor, Tensor
from .training.on_device import DeviceRequest, DeviceTrainer, compile_step, tell_of_chips
from .training.trainer import Workload, by_name
from .tt_by_hand import DrivenTTDevice

_Sink: TypeAlias = "queue.Queue[object] | str"
"""Where something goes that is kept: a queue of its own, or that of intermediates, by a name."""


def _sinks(part: Chain | OnnxPart) -> list[_Sink]:
    """Return where what comes behind the outputs of a part goes: taps of a module come first."""
    if isinstance(part, OnnxPart):
        return [*part.keeps]
    found: list[_Sink] = []
    for inner, names in part.kept():
        queues = [*inner.taps.values()] if isinstance(inner, RecordedModule) else []
        found += [*queues, *names[len(queues) :]]
    return found


class TTDevice(DrivenTTDevice):
    """Runs modules that are compiled for samples of one shape, sample after sample.

    `num_chips` and `chip_ids` say which chips it is, `arch` and `devtype` what kind: all are the
    one model of a device. `fp32_fallback` is what a Grayskull computes in where nothing else is set
    and this is given. `device_mode` and `mp_context` change nothing, which a warning says: modules
    are compiled and run in this process. `optimizer` updates parameters in training, `scheduler`
    changes its learning rate after each epoch. What is trained stays on the device: modules of the
    program keep their values.
    """

    is_even = True
    _trainer: DeviceTrainer | None = None

    def __init__(
        self,
        name: str,
        num_chips: int | None = None,
        chip_ids: Sequence[int] | None = None,
        arch: BackendDevice | None = None,
        devtype: BackendType | None = None,
        device_mode: DeviceMode | None = None,
        optimizer: Optimizer | None = None,
        scheduler: LearningRateScheduler | None = None,
        fp32_fallback: DataFormat | None = None,
        mp_context: object = None,
        module: object = None,
    ) -> None:
        self.chip_ids = chips_of(num_chips, chip_ids)
        require_kind(
            arch=(arch, BackendDevice),
            devtype=(devtype, BackendType),
            device_mode=(device_mode, DeviceMode),
            optimizer=(optimizer, Optimizer),
            scheduler=(scheduler, LearningRateScheduler),
            fp32_fallback=(fp32_fallback, DataFormat),
        )
        held_as(fp32_fallback, "fp32_fallback")
        warn_of_idle(device_mode=device_mode)
        self.arch = arch or BackendDevice.Wormhole_B0
        self.devtype = devtype or BackendType.Silicon
        self._fallback = fp32_fallback
        self._optimizer = optimizer
        self._scheduler = scheduler
        self._trained = TrainedValues(raises=PyBudaError)
        self._runner: SampleRunner[Any] | None = None
        self._versions: list[Version] = []
        self._own_config: CompilerConfig | None = None
        self._changes = 0
        self._settings = UNSET
        self._require_own_schedule(name)
        super().__init__(name, mp_context, module)

    def _compile(self, batch: Samples, keeps: bool = True) -> SampleRunner[_Sink]:
        """Compile the modules for samples like those of `batch`, unless they are.

        With `keeps` programs give what queues of operators get, too. Raises `sambac.CompileError`
        for what cannot be compiled.
        """
        if self._runner is not None:
            return self._runner
        if not self.modules:
            raise PyBudaError(f"device '{self.name}' has no modules; place_module")
        self._changes, self._settings = self._trained_so_far(), self._asked()
        image, settings = image_of(self.modules, training=False), self._settings
        names = batch.names if image is None else image.names
        runner: SampleRunner[_Sink] = SampleRunner(names, run_settings(settings))
        try:
            if image is None:
                kept = settings.intermediates if keeps else None
                self._build(runner, next(batch.samples()), kept)
            else:
                for made in image.stages:
                    runner.add(made)
        except BaseException:
            runner.close()
            raise
        self._runner = runner
        # Now: modules may write to themselves when they are recorded.
        self._versions = [module.version() for module in self.modules]
        return runner

    def _build(
        self, runner: SampleRunner[Any], sample: Sequence[torch.Tensor], kept: Sequence[str] | None
    ) -> None:
        for part in parts_of(self.modules, runner.names, kept):
            names = () if runner.stages else runner.names
            made = compiled(part, sample, names, self._settings, self._values())
            runner.add(made, _sinks(part))
            with of_one_sample(part):
                sample = runner.follow(sample)
        used = max(stage.chips for stage in runner.stages)
        tell_of_chips(self.name, used, len(self.chip_ids))

    def compile_to_image(
        self,
        *,
        img_path: str | os.PathLike[str] | None = None,
        training: bool = False,
        sample_inputs: Sequence[SomeTensor] | Mapping[str, SomeTensor] = (),
        sample_targets: Sequence[SomeTensor] = (),
        microbatch_count: int = 1,
    ) -> TTDeviceImage:
        """Compile for microbatches like the samples, or like what waits; return an image of that.

        It is written to `img_path`, if that is given. What runs is ended. The image has all that
        `load_image` needs, with the values that parameters have now, and no code: a scheduler is
        refused. Raises `PyBudaError` without samples, and as compiling does.
        """
        count = counted("microbatch_count", microbatch_count)
        with current().lock:
            batch = Microbatch.sampled(sample_inputs) or self.inputs.peek()
            given = Microbatch.sampled(sample_targets)
            targets = given or self.targets.peek()
            if batch is None or (training and self.loss is not None and targets is None):
                raise PyBudaError(
                    "nothing says what to compile for: give sample_inputs, and for a loss "
                    "sample_targets"
                )
            if given is not None and not training:
                raise PyBudaError("sample_targets came without training=True")
            current().stop()
            self.close()
            image = replace(self._described(batch), microbatch_count=count)
            if training:
                work = self._work(next(iter(current().working(training=True)), self) is self)
                request = self._request(work)
                samples = (batch, None if self.loss is None else targets)
                image = with_step(image, request, samples, self._trained)
            else:
                runner = self._compile(batch, keeps=False)
                image = replace(image, stages=tuple(stage.made for stage in runner.stages))
        compiler().tell_idle()
        if img_path is not None:
            image.save_to_disk(img_path)
        return image

    def _described(self, batch: Samples) -> TTDeviceImage:
        """Return an image without programs."""
        return TTDeviceImage(
            self.name,
            self.arch.name,
            self.devtype.name,
            self.chip_ids,
            None if self._fallback is None else self._fallback.name,
            tuple(module.get_name() for module in self.modules),
            batch.names,
            str(self._asked()),
        )

    @staticmethod
    def load_image(
        *,
        img: TTDeviceImage | None = None,
        img_path: str | os.PathLike[str] | None = None,
        device_id_overrides: Sequence[int] | None = None,
    ) -> TTDevice:
        """Return a new device that runs an image, or the one in a file, without compiling.

        `device_id_overrides` are other chips, as many. What is configured now has no effect on it.
        Raises `PyBudaError` as `TTDeviceImage.load_from_disk` does.
        """
        if (img is None) is (img_path is None):
            raise PyBudaError("load_image takes either img or img_path")
        image = TTDeviceImage.load_from_disk(img_path) if img_path is not None else img
        require_kind(img=(image, TTDeviceImage))
        assert image is not None
        if compiler().settings() != UNSET:
            warn("what is configured has no effect on an image, which is compiled already")
        device = TTDevice(
            image.name,
            chip_ids=image.chips(device_id_overrides),
            arch=BackendDevice[image.arch],
            devtype=BackendType[image.devtype],
            optimizer=image.optimizer(),
            fp32_fallback=image.fallback,
        )
        device.modules, device.loss = image.placeables()
        return device

    @property
    def optimizer(self) -> Optimizer | None:
        """What updates parameters in training."""
        return self._optimizer

    def infer(self, batch: Samples, taps: bool = True) -> tuple[torch.Tensor, ...]:
        """Return the outputs of the last module for all samples, each computed by itself.

        With `taps` their queues get what operators give.
        """
        with self.at_work:
            runner = self._runner or self._compile(batch)
            found, kept = runner.run(batch)
        if taps and kept:
            self._keep(runner.sinks, kept)
        return found

    def _keep(self, sinks: Sequence[_Sink], found: Sequence[torch.Tensor]) -> None:
        """Let queues of taps have a tensor each, and that of intermediates those it asks for."""
        for sink, tensor in zip(sinks, found, strict=True):
            if not isinstance(sink, str):
                sink.put(Tensor(tensor))
        asked = [
            Tensor(tensor)
            for name in self._settings.intermediates
            for sink, tensor in zip(sinks, found, strict=True)
            if sink == name
        ]
        if asked:
            current().intermediates.put(asked)

    def verify(self, batch: Samples, found: Sequence[torch.Tensor], rule: GoldenRule) -> None:
        """Raise `AssertionError` where the outputs for a microbatch are not near torch's."""
        golden = self.golden(batch if self._runner is None else batch.ordered(self._runner.names))
        for index, (wanted, came) in enumerate(zip(golden, found, strict=True)):
            rule.require(f"device '{self.name}': output {index}", wanted, came)

    def golden(self, batch: Samples) -> tuple[torch.Tensor, ...]:
        """Return what torch gives for a microbatch, with the values that the device has."""
        parts = parts_of(self.modules, batch.names)
        return joined([evaluated(parts, each, self._values()) for each in batch.samples()])

    def prepare(self, batch: Samples) -> Samples | None:
        """Compile for microbatches like this, and return what it gives."""
        return Microbatch(self.infer(batch, taps=False))

    def trainer(self, first: bool) -> DeviceTrainer:
        """Return what trains the modules, the same again while these and their values are the same.

        It goes on from what was trained here before.
        """
        work = self._work(first)
        request = self._request(work)
        if self._trainer is None or not self._trainer.fits(request):
            self.close()
            image = image_of(work.placed(), training=True)
            compiles = (
                partial(compile_step, request)
                if image is None
                else compiled_by(image, work.placed(), first)
            )
            self._trainer = DeviceTrainer(request, self._trained, compiles)
        self._trainer.begin()
        return self._trainer

    def _request(self, work: Workload) -> DeviceRequest:
        chips = len(self.chip_ids)
        return DeviceRequest(work, self._optimizer, self._scheduler, self._asked(), chips)

    def parameters(self) -> Mapping[str, torch.Tensor]:
        """Return copies of the parameters that can be trained."""
        known = self._values().values()
        return {
            name: known.get(id(item), item.detach()).clone()
            for name, item in by_name([*self.modules, *filter(None, (self.loss,))]).items()
            if item.requires_grad
        }

    def refresh(self) -> None:
        """Forget what was compiled if parameters, parts of it, or the configuration changed."""
        with self.at_work:
            if self._runner is not None and not (
                self._settings == self._asked()
                and self._changes == self._trained_so_far()
                and all(map(self._stands, range(len(self.modules))))
            ):
                self._close_stages()

    def _stands(self, index: int) -> bool:
        """Return whether a module is as it was when it was compiled."""
        if self._versions[index].stands():
            return True
        compiled, self._versions[index] = self._versions[index], self.modules[index].version()
        return compiled.is_that_of(self._versions[index])

    def is_current(self) -> bool:
        """Return whether what trains here was compiled of modules as they are now."""
        return self._trainer is None or self._trainer.is_current()

    def close(self) -> None:
        """Forget what was compiled, but what was trained, and give back its memory."""
        if self._trainer is not None:
            self._trained = self._trainer.trained()
            self._trainer.close()
            self._trainer = None
        self._close_stages()

    def forget(self) -> None:
        """Forget what was trained here and is not in the modules of the program."""
        self._trained = TrainedValues(raises=PyBudaError)

    def _require_own_schedule(self, name: str) -> None:
        """Raise `PyBudaError` where a scheduler changes the learning rate of another device.

        Devices are at different steps at one time, so that one would train with the other's rate.
        """
        scheduler, optimizer = self._scheduler, self._optimizer
        if scheduler is not None and scheduler.optimizer is not optimizer:
            raise PyBudaError(f"the scheduler of device '{name}' is of another optimizer")
        for other in current().devices:
            if not isinstance(other, TTDevice) or optimizer is None:
                continue
            scheduled = scheduler is not None or other._scheduler is not None
            if other._optimizer is optimizer and scheduled:
                raise PyBudaError(
                    f"the devices '{other.name}' and '{name}' have one optimizer, whose "
                    "learning rate a scheduler changes; give each its own"
                )

    def _close_stages(self) -> None:
        if self._runner is not None:
            self._runner.close()
        self._runner = None

    def _values(self) -> TrainedValues:
        """Return what was trained here so far."""
        return self._trained if self._trainer is None else self._trainer.trained()

    def _asked(self) -> CompileSettings:
        """Return what the configuration asks of a compilation for this device."""
        narrow = self.arch is BackendDevice.Grayskull
        passes = None if self.verified is None else self.verified.passes()
        asked = (self._own_config or compiler()).settings(self._fallback if narrow else None)
        devices = sum(isinstance(device, TTDevice) for device in current().devices)
        threads = max(torch.get_num_threads() // devices, 1) if devices > 1 else None
        return replace(asked, passes=passes, threads=threads)

    def _trained_so_far(self) -> int:
        return 0 if self._trainer is None else self._trainer.changes

    def _require_runs(self, module: Placeable) -> None:
        """Every module runs here."""
