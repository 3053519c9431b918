"""What programs do to one device by themselves: its passes, commands to it, torch beside it."""

from __future__ import annotations

import inspect
import queue
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NoReturn, TypeAlias

import torch

from pef.arguments import BY_NAME, instance, misfits, shown, tell
from pef.misfits import require_kinds
from pef.warned import warn

from .crew import Channel
from .errors import HostError
from .host_evaluation import HostEvaluation
from .inference_pipeline import InferencePipeline
from .samples import Samples
from .training_pipeline import TrainingPipeline

AnyPipeline: TypeAlias = InferencePipeline | TrainingPipeline
Answer: TypeAlias = Mapping[str, object]
_WAIT = 0.1
"""Seconds after which who waits looks whether there is a device still."""
_DIRECTIONS = ("forward", "forward_input", "target", "backward", "intermediates")

CommandType = Enum(
    "CommandType",
    {
        "QUIT": 1,
        "RUN_FORWARD": 2,
        "RUN_BACKWARD": 3,
        "RUN_OPTIMIZER": 4,
        "RUN_SCHEDULERS": 5,
        "GET_PARAMETER_CHECKPOINT": 6,
        "GET_PARAMETER_GRADIENTS": 7,
        "COMPILE": 8,
        "UPDATE_DEVICE_PARAMETERS": 9,
        "DC_TRANSFER": 13,
        "CPUEVAL_FORWARD": 14,
        "CPUEVAL_BACKWARD": 15,
        "SYNC": 17,
    },
)
"""What a command tells a device."""


@dataclass(frozen=True)
class Command:
    """A command to a device, and arguments by name: those of the method of a like name."""

    command_type: CommandType
    params: Mapping[str, Any] = field(default_factory=dict)


class Driven(ABC):
    """The base of devices, as far as programs drive each by itself.

    `raises` are the errors of an API, which also says what its tensors are.
    """

    name: str
    inputs: Channel[Samples]
    targets: Channel[Samples]
    raises: type[Exception] = HostError
    _evaluation: HostEvaluation | None = None

    def __init__(self) -> None:
        self._answers: queue.Queue[Answer] = queue.Queue()

    def __reduce__(self) -> NoReturn:
        """Raise an error: a device is where its threads are."""
        raise self.raises(
            f"device '{self.name}' is not copied or pickled: it runs in threads of this process; "
            "make one in each process that needs one"
        )

    def forward(self, loop_count: int) -> None:
        """Run so many microbatches forward on this device alone, and return when it has.

        They are what was pushed, or came from the device before. Raises an error for too few,
        and without a pipeline.
        """
        self._forward(loop_count, in_sequence=True)

    def backward(self, loop_count: int, zero_grad: bool) -> None:
        """Run so many microbatches backward on this device alone, after zeroing gradients if asked.

        Raises an error for too few, and without a pipeline that trains.
        """
        self._backward(loop_count, zero_grad, in_sequence=True)

    def push_to_command_queue(self, cmd: Command) -> None:
        """Let the thread of this device run passes and steps that a command says, and return.

        What else a command says is done before this returns, after what the device was told before.
        Raises an error for what is no command, and as what it says does.
        """
        self._obey(cmd, in_sequence=False)

    def get_command_queue_response(self) -> Answer | None:
        """Return the next answer to a command when there is one; None once a device has failed."""
        while True:
            try:
                return self._answers.get(timeout=_WAIT)
            except queue.Empty:
                if not self._is_well():
                    return None

    def get_next_command(self, command_queue: queue.Queue[Command]) -> Command | None:
        """Return the next command of a queue when there is one, None once this one is gone."""
        while True:
            try:
                return command_queue.get(timeout=_WAIT)
            except queue.Empty:
                if not self._is_well():
                    return None

    def run_next_command(self, cmd: Command) -> bool:
        """Do what a command says, in the thread of the caller; return whether it is to quit.

        What it answers is for `get_command_queue_response`.
        """
        self._obey(cmd, in_sequence=True)
        return cmd.command_type is CommandType.QUIT

    def run(self, output_dir: str) -> None:
        """Return when this device has done what it was told: its loop is a thread of its own.

        `output_dir` gets nothing, which is told.
        """
        warn(f"output_dir={shown(output_dir)}: on hardware traces are kept there, and none is here")
        self.sync()

    def dc_transfer(self, direction: str) -> None:
        """Do nothing: what a device gives is at the next one as soon as it is computed.

        Raises an error for a direction that there is not.
        """
        if direction not in _DIRECTIONS:
            raise self.raises(
                f"direction is {shown(direction)}; there are {', '.join(_DIRECTIONS)}"
            )

    def dc_transfer_thread(self, direction: str, direction_queue: queue.Queue[str]) -> None:
        """Take from a queue, for which there is nothing to do, until "quit" comes."""
        self.dc_transfer(direction)
        while (told := direction_queue.get()) != "quit":
            self.dc_transfer(told)

    def generate(
        self, loop_count: int, write_index: int, tokens_per_iter: int = 1, token_id: int = 0
    ) -> NoReturn:
        """Raise an error: models with a cache between calls do not run."""
        raise self.raises(
            f"device '{self.name}' generates no tokens: models with a cache between calls do not "
            "run; call the model with all tokens"
        )

    def get_first_inputs(
        self, peek: bool = False
    ) -> tuple[int, tuple[object, ...]] | tuple[None, None]:
        """Return the size of the first microbatch that waits, and its first sample.

        It goes on waiting. Without one that is None twice by `peek`, and else an error.
        """
        batch = self.inputs.peek()
        if batch is not None:
            return batch.size, self._told(next(batch.samples()))
        if peek:
            return None, None
        raise self.raises(f"no inputs were pushed to device '{self.name}'")

    def get_first_targets(self) -> tuple[object, ...]:
        """Return the first sample of the targets that wait. Raises an error for none."""
        batch = self.targets.peek()
        if batch is None:
            raise self.raises(f"no targets were pushed to device '{self.name}'")
        return self._told(next(batch.samples()))

    def shutdown_device(self) -> None:
        """Take all modules from this device, and drop what waits for them, and for the loss."""
        self.remove_modules()
        self.targets.clear()

    def cpueval_forward(
        self,
        inputs: Sequence[object],
        parameters: Mapping[str, object],
        save_for_backward: bool,
        targets: Sequence[object] = (),
    ) -> list[torch.Tensor]:
        """Return what torch gives for a microbatch, with these values of parameters, by name.

        With `targets` that is what the loss gives, and modules train. `save_for_backward` lets
        `cpueval_backward` follow. Raises an error where torch cannot run the modules.
        """
        batch = Samples((*map(self._torch, inputs), *map(self._torch, targets)))
        values = {name: self._torch(value) for name, value in parameters.items()}
        with self._reworded():
            evaluation = self._evaluated(values, batch, len(targets))
            found = evaluation.forward(batch)
        self._evaluation = evaluation if save_for_backward else None
        return [*found]

    def cpueval_backward(
        self, bw_inputs: Sequence[object], parameters: Mapping[str, object]
    ) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
        """Return the gradients of inputs, and of parameters, of the pass that was saved.

        They are of what requires some. `bw_inputs` are those of outputs; a loss starts from ones.
        """
        if self._evaluation is None:
            raise self.raises("there is no pass to run backward: cpueval_forward saves one")
        evaluation, self._evaluation = self._evaluation, None
        with self._reworded():
            inputs, found = evaluation.backward([*map(self._torch, bw_inputs)])
        return inputs, {name: value for name, value in found.items() if name in parameters}

    @abstractmethod
    def sync(self) -> None:
        """Return when devices have done what they were told. Raises what failed in one."""

    @abstractmethod
    def remove_modules(self) -> None:
        """Take all modules from this device, and drop what waits for them."""

    @abstractmethod
    def get_parameter_checkpoint(self) -> Mapping[str, object]:
        """Return the parameters as they are trained, by name."""

    @abstractmethod
    def get_parameter_gradients(self) -> Mapping[str, object]:
        """Return the gradients so far, by parameter."""

    def compile_for(
        self, training: bool, microbatch_size: int = 0, microbatch_count: int = 1
    ) -> object:
        """Do nothing: sizes are those of what is pushed. Devices compile by arguments of theirs."""
        return None

    @abstractmethod
    def _overwrite(self, values: Mapping[str, object]) -> None:
        """Overwrite parameters that train, by name. Raises an error for what does not fit."""

    @abstractmethod
    def _torch(self, value: object) -> torch.Tensor:
        """Return a tensor of the API as one of torch. Raises an error for what is none."""

    @abstractmethod
    def _told(self, tensors: Sequence[torch.Tensor]) -> tuple[object, ...]:
        """Return tensors of torch as those of the API."""

    @contextmanager
    def _reworded(self) -> Iterator[None]:
        try:
            yield
        except HostError as error:
            raise self.raises(f"device '{self.name}': {error}") from error

    @abstractmethod
    def _among(self) -> tuple[AnyPipeline, int]:
        """Return the pipeline, and which device this is. Raises an error for none."""

    @abstractmethod
    def _evaluated(
        self, values: Mapping[str, torch.Tensor], batch: Samples, targets: int
    ) -> HostEvaluation:
        """Return what torch runs: modules, and the loss where there are `targets`."""

    @abstractmethod
    def _is_well(self) -> bool:
        """Return whether this is a device still, and none has failed."""

    def _count(self, loop_count: object) -> int:
        if not isinstance(loop_count, int) or loop_count < 1:
            raise self.raises(f"loop_count is {shown(loop_count)}; a number from 1 on was expected")
        return loop_count

    def _forward(self, loop_count: int, in_sequence: bool) -> None:
        pipeline, index = self._among()
        pipeline.forward(self._count(loop_count), in_sequence, index)

    def _backward(self, loop_count: int, zero_grad: bool, in_sequence: bool) -> None:
        pipeline, index = self._in_training()
        count = self._count(loop_count)
        pipeline.backward(count, bool(zero_grad), in_sequence, index)

    def _in_training(self) -> tuple[TrainingPipeline, int]:
        pipeline, index = self._among()
        if not isinstance(pipeline, TrainingPipeline):
            raise self.raises("the pipeline is one of inference; nothing trains")
        return pipeline, index

    def _obey(self, cmd: Command, in_sequence: bool) -> None:
        """Do what a command says. Raises an error for what is none."""
        if not isinstance(cmd, Command):
            raise self.raises(f"cmd is {shown(cmd)}; a Command was expected")
        if odd := misfits(
            command_type=(cmd.command_type, instance(CommandType, "a CommandType")),
            params=(cmd.params, BY_NAME),
        ):
            raise self.raises("\n".join(odd))
        does, runs = _COMMANDS[cmd.command_type]
        try:
            given = inspect.signature(does).bind(
                self, *([in_sequence] if runs else ()), **cmd.params
            )
        except TypeError as error:
            raise self.raises(f"the command {cmd.command_type.name}: {error}") from error
        answer = does(*given.args, **given.kwargs)
        if answer is not None:
            self._answers.put(answer)


def _compiles(device: Any, **given: Any) -> Answer:
    return {"outputs": device.compile_for(**given)}  # kinds of devices have arguments of their own


def _optimizes(device: Driven, in_sequence: bool) -> None:
    pipeline, index = device._in_training()
    pipeline.optimize(False, in_sequence, index)


def _schedules(device: Driven, in_sequence: bool) -> None:
    pipeline, index = device._in_training()
    pipeline.schedule(in_sequence, index)


def _gradients(device: Driven, bw_inputs: Sequence[object], parameters: Any) -> Answer:
    inputs, found = device.cpueval_backward(bw_inputs, parameters)
    return {"input_grads": inputs, "params_grads": found}


_COMMANDS: Mapping[CommandType, tuple[Callable[..., Answer | None], bool]] = {
    CommandType.QUIT: (lambda device: device.shutdown_device(), False),
    CommandType.RUN_FORWARD: (
        lambda device, in_sequence, loop_count: device._forward(loop_count, in_sequence),
        True,
    ),
    CommandType.RUN_BACKWARD: (
        lambda device, in_sequence, loop_count, zero_grad: device._backward(
            loop_count, zero_grad, in_sequence
        ),
        True,
    ),
    CommandType.RUN_OPTIMIZER: (_optimizes, True),
    CommandType.RUN_SCHEDULERS: (_schedules, True),
    CommandType.COMPILE: (_compiles, False),
    CommandType.GET_PARAMETER_CHECKPOINT: (
        lambda device: {"checkpoint": device.get_parameter_checkpoint()},
        False,
    ),
    CommandType.GET_PARAMETER_GRADIENTS: (
        lambda device: {"gradients": device.get_parameter_gradients()},
        False,
    ),
    CommandType.UPDATE_DEVICE_PARAMETERS: (
        lambda device, parameters: device._overwrite(parameters),
        False,
    ),
    CommandType.DC_TRANSFER: (lambda device, direction: device.dc_transfer(direction), False),
    CommandType.CPUEVAL_FORWARD: (
        lambda device, **given: {"result": device.cpueval_forward(**given)},
        False,
    ),
    CommandType.CPUEVAL_BACKWARD: (_gradients, False),
    CommandType.SYNC: (lambda device: {"sync": device.sync() is None}, False),
}
"""What commands do to a device, and whether they run passes or steps, which its thread may do."""

tell(
    Driven, __package__, require_kinds
)  # so that kinds of devices, which may rename methods, have them so
