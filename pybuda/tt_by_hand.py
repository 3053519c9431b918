"""What programs ask of a `TTDevice` by itself: compiling it, its graph, its parameters."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from pef.arguments import shown
from pef.program import Program
from sambahost.host_evaluation import HostEvaluation, noting_calls, read_by
from sambahost.models import tried
from sambahost.sample_runner import SampleRunner
from sambahost.samples import Samples
from sambahost.stages import StageProgram

from ._C.backend_api import BackendDevice, BackendType
from .compiling import operators_of
from .config import CompilerConfig, CompileSettings, compiler
from .device import Device, current
from .errors import PyBudaError, counted, require_kind
from .microbatch import Microbatch
from .optimizers import Optimizer
from .parameter import Parameter
from .schedulers import LearningRateScheduler
from .stage import parts_of, run_settings
from .tensor import SomeTensor, Tensor
from .training.on_device import DeviceRequest, DeviceTrainer
from .training.trainer import by_name
from .verifying import asked_for

_STATES = {"mean": "exp_avg", "variance": "exp_avg_sq", "momentum": "momentum"}
"""What the compiler calls states of optimizers."""


class DeviceConfig(NamedTuple):
    """Which device of the model a `TTDevice` is."""

    arch: BackendDevice
    chip_ids: tuple[int, ...]
    devtype: BackendType


class DrivenTTDevice(Device):
    """The base of `TTDevice`, as far as programs drive it by itself."""

    chip_ids: tuple[int, ...]
    arch: BackendDevice
    devtype: BackendType
    _optimizer: Optimizer | None
    _scheduler: LearningRateScheduler | None
    _own_config: CompilerConfig | None
    _runner: SampleRunner[Any] | None
    _trainer: DeviceTrainer | None

    @abstractmethod
    def _asked(self) -> CompileSettings:
        """Return what the configuration asks of a compilation for this device."""

    def compile_for(  # type: ignore[override]  # as the original's devices have it
        self,
        inputs: Sequence[SomeTensor],
        compiler_cfg: CompilerConfig | None = None,
        targets: Sequence[SomeTensor] = (),
        microbatch_size: int = 0,
        microbatch_count: int = 1,
        verify_cfg: object = None,
    ) -> tuple[Tensor, ...]:
        """Compile the modules for inputs like these; return what they give, in training zeros.

        They train where there is a `microbatch_size`. `compiler_cfg` is for this device alone from
        now on; `microbatch_count` limits nothing. By `verify_cfg` outputs are compared with torch.
        What runs is ended. Raises `PyBudaError` without inputs, and as compiling does.
        """
        require_kind(compiler_cfg=(compiler_cfg, CompilerConfig))
        counted("microbatch_count", microbatch_count, 1)
        training = counted("microbatch_size", microbatch_size) > 0
        batch, verified = Microbatch.of((tuple(inputs),)), asked_for(verify_cfg, "verify_cfg")
        with current().lock:
            current().stop()
            self.close()
            asked = compiler() if compiler_cfg is None else compiler_cfg
            self._own_config = None if asked is compiler() else asked
            asked._known = compiler()._known  # names are those of all programs
            if training:
                wanted = Microbatch.sampled(tuple(targets))
                found = self.trainer(self._is_first()).prepare(batch, wanted)
                given = () if found is None else found.tensors
            else:
                given = self.infer(batch)
                if verified is not None:
                    self.verify(batch, given, verified.rule())
            asked.tell_idle()
        return self._told(given)

    def generate_graph(
        self,
        *inputs: SomeTensor,
        target_tensors: Sequence[SomeTensor] = (),
        return_intermediate: bool = False,
        graph_name: str = "default_graph",
        compiler_cfg: CompilerConfig | None = None,
        trace_only: bool = False,
        verify_cfg: object = None,
    ) -> tuple[
        tuple[Program, ...],
        tuple[Tensor, ...],
        dict[str, Tensor],
        tuple[SomeTensor, ...],
        tuple[SomeTensor, ...],
    ]:
        """Return programs, outputs, what operators give, inputs and targets.

        They are compiled as by `compile_for`, to train where there are targets, and kept unless it
        is to `trace_only`. What operators give is there with `return_intermediate`, by their names.
        `graph_name` is nowhere kept.
        """
        size = Microbatch.of((inputs,)).size if target_tensors else 0
        found = self.compile_for(inputs, compiler_cfg, target_tensors, size, verify_cfg=verify_cfg)
        between = self._between(Microbatch.of((inputs,))) if return_intermediate else {}
        programs = tuple(made.program for made in self._made())
        if trace_only:
            self.close()
        return programs, found, between, inputs, tuple(target_tensors)

    def get_parameters(self, ignore_unused_parameters: bool = True) -> list[Parameter]:
        """Return parameters, with copies of values as they are trained, or as modules have them.

        `ignore_unused_parameters` leaves out what modules do not read: inputs have to be known by
        then, pushed or compiled for; else all are there.
        """
        read = self._read() if ignore_unused_parameters else None
        values = self.get_parameter_checkpoint()
        return [
            Parameter(
                values[name].value() if name in values else item.detach().clone(),
                requires_grad=item.requires_grad,
                name=name,
            )
            for name, item in by_name(self.modules).items()
            if read is None or id(item) in read
        ]

    def get_optimizer_params(self, is_buda: bool) -> dict[str, dict[str, Tensor]]:
        """Return by parameter the rate `lr`, and the state of the optimizer that there is so far.

        That is `mean` and `variance`, or `momentum`. `is_buda` changes nothing: there are no tiles.
        """
        if self._optimizer is None:
            return {}
        self.sync()
        find = None if self._trainer is None else self._trainer.state
        rate = self._optimizer.learning_rate
        return {
            name: {
                "lr": Tensor(torch.tensor([rate])),
                **{
                    said: Tensor(value)
                    for said, kept in _STATES.items()
                    if find is not None and (value := find(name, kept)) is not None
                },
            }
            for name in self.parameters()
        }

    def get_scheduler_params(self, is_buda: bool) -> dict[str, dict[str, Tensor]]:
        """Return by parameter the rate `lr` that a scheduler changes; nothing without one."""
        found = {} if self._scheduler is None else self.get_optimizer_params(is_buda)
        return {name: {"lr": each["lr"]} for name, each in found.items()}

    def get_active_subgraph(self) -> int:
        """Return 0: modules are one graph."""
        return 0

    def set_active_subgraph(self, subgraph_index: int) -> None:
        """Do nothing for 0, the only graph. Raises `PyBudaError` for another."""
        if subgraph_index != 0:
            raise PyBudaError(f"there is no graph {subgraph_index}; a device has one graph, 0")

    def get_device_config(self, compiler_cfg: CompilerConfig | None = None) -> DeviceConfig:
        """Return which device of the model this is; the configuration changes nothing of it."""
        return DeviceConfig(self.arch, self.chip_ids, self.devtype)

    def get_dram_io_queues(self, queue_type: str) -> list[tuple[str, tuple[int, ...]]]:
        """Return names and shapes of what a sample has of a kind, in order.

        Kinds are input, target, output, bw_input, bw_output. Raises `PyBudaError` for others, and
        before anything was compiled.
        """
        made, step = self._made(), None if self._trainer is None else self._trainer.step
        if not made:
            raise PyBudaError(f"device '{self.name}' was not compiled yet; call compile_for")
        first, last = made[0], made[-1]
        own = len(first.inputs) if step is None else step.inputs[0]
        targets = last.inputs[len(last.inputs) if step is None else step.inputs[-1] :]
        ends = () if step is None or self.loss is not None else last.outputs
        starts = () if step is None or self._is_first() else first.inputs[:own]
        kinds = {
            "input": (first, first.inputs[:own]),
            "target": (last, targets),
            "output": (last, last.outputs),
            "bw_input": (last, ends),
            "bw_output": (first, starts),
        }
        if queue_type not in [*kinds]:
            raise PyBudaError(f"queue_type is {shown(queue_type)}; there are {', '.join(kinds)}")
        program, names = kinds[queue_type]
        shapes = (tuple(each.shape) for each in program.zeros(names))
        return [*zip(names, shapes, strict=True)]

    @abstractmethod
    def _build(
        self, runner: SampleRunner[Any], sample: Sequence[torch.Tensor], kept: Sequence[str] | None
    ) -> None:
        """Compile the modules for a sample to give operators `kept`, too; load it in `runner`."""

    def _is_first(self) -> bool:
        return next(iter(current().working(training=True)), self) is self

    def _made(self) -> Sequence[StageProgram]:
        """Return the programs that were compiled, those of training if there are some."""
        if self._trainer is not None and self._trainer.step is not None:
            return self._trainer.step.made
        return [] if self._runner is None else [stage.made for stage in self._runner.stages]

    def _between(self, batch: Samples) -> dict[str, Tensor]:
        """Return what operators give for a microbatch, by their names."""
        sample, names = next(batch.samples()), list[str]()
        for part in parts_of(self.modules, ()):
            with noting_calls() as ran:
                if isinstance(part, torch.nn.Module):
                    sample = tried(part, sample, training=False)
            names += operators_of(part, ran)
        runner: SampleRunner[object] = SampleRunner((), run_settings(self._asked()))
        self._build(runner, next(batch.samples()), names)
        _, kept = runner.run(batch)
        runner.close()
        pairs = zip(runner.sinks, kept, strict=True)
        return {sink: Tensor(value) for sink, value in pairs if isinstance(sink, str)}

    def _evaluated(
        self, values: Mapping[str, torch.Tensor], batch: Samples, targets: int
    ) -> HostEvaluation:
        inputs = type(batch)(batch.tensors[: len(batch.tensors) - targets])
        work = self._work(first=True)
        if not targets:
            work = replace(work, loss=None)
        part = DeviceRequest(work, None, None, self._asked(), len(self.chip_ids)).part(inputs)
        own, training = by_name(work.placed()), targets > 0
        return HostEvaluation(part, own, values, by_sample=True, training=training)

    def _read(self) -> set[int] | None:
        """Return the ids of parameters that modules read, None where no inputs are known."""
        batch, names, found = self.inputs.peek(), tuple[str, ...](), set[int]()
        if batch is not None:
            sample, names = next(batch.samples()), batch.names
        elif made := self._made():
            sample = made[0].zeros([name for name, _ in self.get_dram_io_queues("input")])
        else:
            return None
        for part in parts_of(self.modules, names):
            if not isinstance(part, torch.nn.Module):
                return None
            found |= read_by(part, sample)
            sample = tried(part, sample, training=False)
        return found
