"""Programs on the device that take tensors in an order, and give some: forward, and backward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch

import sambarun
from pef.graphs import chips_of, gradient_name
from pef.program import Port, Program, Section

from .arrays import torch_type
from .errors import HostError
from .model_session import ModelSession
from .step_session import ForwardRun, StepSession
from .wording import reworded

_ALL = sambarun.Selection()
_RATE = "lr"
_SEED = "seed"
AnySession = TypeVar("AnySession", bound=ModelSession)


@dataclass(frozen=True)
class StageProgram:
    """A compiled program, the ports of its inputs and outputs in order, and names of the inputs."""

    program: Program
    inputs: tuple[str, ...]
    names: tuple[str, ...]
    outputs: tuple[str, ...]

    def given(self, sample: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the tensors of a sample by port. Raises `HostError` for another number."""
        if len(sample) != len(self.inputs):
            raise HostError(
                f"{len(sample)} inputs came, {len(self.inputs)} were expected: "
                f"{', '.join(self.names)}"
            )
        return dict(zip(self.inputs, sample, strict=True))

    def zeros(self, names: Sequence[str]) -> tuple[torch.Tensor, ...]:
        """Return zeros like the inputs or outputs at these ports."""
        graph = self.program.graphs[0]
        ports = {port.name: port for port in (*graph.inputs, *graph.outputs)}
        return tuple(self._zeros(ports[name]) for name in names)

    def _zeros(self, port: Port) -> torch.Tensor:
        symbol = self.program.symbols[port.symbol]
        sizes = [size for size in symbol.shape or () if isinstance(size, int)]
        return torch.zeros(sizes, dtype=torch_type(symbol.dtype))


class _Reworded:
    """A context that tells of what does not fit a program, in the names that programs know.

    It is no generator, which takes longer than many a run.
    """

    __slots__ = ("_made", "_raises")

    def __init__(self, made: StageProgram, raises: Callable[[str], Exception]) -> None:
        self._made = made
        self._raises = raises

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, HostError):
            known = dict(zip(self._made.names, self._made.inputs, strict=True))
            raise self._raises(reworded(str(error), known)) from error


class DeviceStage(Generic[AnySession]):
    """A program on the device; `raises` makes errors of an API from sentences."""

    def __init__(
        self, made: StageProgram, session: AnySession, raises: Callable[[str], Exception]
    ) -> None:
        self.made = replace(made, program=session.program)  # in the file that is mapped
        self._session = session
        self._told = _Reworded(made, raises)

    def close(self) -> None:
        """Give back the memory of the device."""
        self._session.close()


@dataclass(frozen=True)
class _Chip:
    """A chip of a pipeline: its memory, and its calls.

    It `takes` symbols from chips before, and `gives` some to those behind.
    """

    session: ModelSession
    calls: sambarun.Selection
    takes: tuple[str, ...]
    gives: tuple[str, ...]


class Stage(DeviceStage[ModelSession]):
    """A program for samples of fixed shapes, on one chip or on several, each with its memory."""

    def __init__(
        self, made: StageProgram, threads: int | None, api: str, raises: Callable[[str], Exception]
    ) -> None:
        executable = sambarun.load(made.program, threads=threads)
        super().__init__(made, ModelSession(executable, api), raises)
        calls = chips_of(made.program.graphs[0])
        sessions = [ModelSession(executable.clone(), api) for _ in calls[1:]]
        self._chips = [
            _chip(session, own, calls)
            for session, own in zip((self._session, *sessions), calls, strict=True)
        ]

    @property
    def chips(self) -> int:
        """How many chips there are."""
        return len(self._chips)

    def close(self) -> None:
        """Give back the memory of all chips."""
        for chip in self._chips:
            chip.session.close()

    def forward(self, sample: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the outputs for one sample.

        Raises what `raises` makes if it has not the number, shapes and types of those compiled for.
        """
        with self._told:
            given = self.made.given(sample)
            results = self._on_chips(given) if self.chips > 1 else self._whole(given)
        return [self._session.result(name, results) for name in self.made.outputs]

    def _whole(self, given: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
        self._session.hold(given)
        return self._session.run(_ALL, {})

    def _on_chips(self, given: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
        results: dict[str, np.ndarray] = {}
        between: dict[str, np.ndarray] = {}
        for chip in self._chips:
            chip.session.hold(given)
            chip.session.executable.write({name: between[name] for name in chip.takes})
            results.update(chip.session.run(chip.calls, {}))
            between.update(chip.session.executable.read(*chip.gives))
        return results


def _chip(session: ModelSession, own: range, calls: Sequence[range]) -> _Chip:
    """Return the chip that does the calls `own`; `calls` are those of all."""
    program = session.program

    def of(chips: Iterable[range], what: Callable[[Section], Sequence[int]]) -> set[int]:
        sections = (program.sections[program.schedule[at]] for chip in chips for at in chip)
        return {symbol for section in sections for symbol in what(section)}

    before = [chip for chip in calls if chip.stop <= own.start]
    behind = [chip for chip in calls if chip.start >= own.stop]
    takes = of([own], lambda section: section.inputs) & of(before, lambda s: s.outputs)
    gives = of([own], lambda section: section.outputs) & of(behind, lambda s: s.inputs)
    return _Chip(
        session,
        sambarun.Selection(calls=own),
        tuple(program.symbols[index].name for index in sorted(takes)),
        tuple(program.symbols[index].name for index in sorted(gives)),
    )


class TrainedStage(DeviceStage[StepSession]):
    """A program for samples of fixed shapes, whose gradients add up until they are zeroed.

    The first `inputs` of what it takes are inputs, the others targets.
    """

    def __init__(
        self,
        made: StageProgram,
        inputs: int,
        threads: int | None,
        api: str,
        raises: Callable[[str], Exception],
    ) -> None:
        executable = sambarun.load(made.program, threads=threads)
        super().__init__(made, StepSession(executable, api), raises)
        self.outputs = made.zeros(made.outputs)
        self.inputs = inputs
        self._gradients = [gradient_name(port) for port in made.inputs[:inputs]]

    def draw_from(self, seed: int) -> None:
        """Let masks be drawn from `seed`: stages of one seed draw the same."""
        seeds = (argin.name for argin in self.made.program.argins if argin.option == _SEED)
        self._session.executable.write(dict.fromkeys(seeds, float(seed)))

    def forward(self, sample: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], ForwardRun]:
        """Return the outputs for one sample, and what its backward run needs.

        Raises what `raises` makes if it has not the number, shapes and types of those compiled for.
        """
        read = self._session.inputs
        with self._told:
            given = {port: item for port, item in self.made.given(sample).items() if port in read}
            results, run = self._session.forward(given)
            return [self._session.result(name, results) for name in self.made.outputs], run

    def backward(
        self, run: ForwardRun, gradients: Sequence[torch.Tensor | None] | None
    ) -> list[torch.Tensor | None]:
        """Add up the gradients of parameters, and return those of the inputs.

        `gradients` are those of the outputs; without them it starts from ones.
        """
        session = self._session
        with self._told:
            results = session.backward(run, {} if gradients is None else self._starts(gradients))
            return [
                session.result(name, results) if name in results else None
                for name in self._gradients
            ]

    def begin(self) -> None:
        """Forget that the last forward run has no backward run yet."""
        self._session.begin()

    def zero_gradients(self) -> None:
        """Let gradients add up from zero."""
        with self._told:
            self._session.zero_gradients()

    def optimize(self, rate: float) -> None:
        """Update the parameters by the optimizer, with this learning rate."""
        with self._told:
            self._session.optimize({_RATE: rate})

    def find(self, name: str) -> torch.Tensor | None:
        """Return a copy of what `name` holds: a parameter, `<parameter>__grad`, a buffer."""
        return self._session.find(name)

    def find_all(self, names: Sequence[str]) -> list[torch.Tensor | None]:
        """Return copies of what `names` hold, None for what is not there."""
        return self._session.find_all(names)

    def write(self, name: str, value: torch.Tensor) -> None:
        """Overwrite what `name` holds. Raises what `raises` makes for what does not fit."""
        with self._told:
            self._session.write(name, value)

    def _starts(self, gradients: Sequence[torch.Tensor | None]) -> dict[str, torch.Tensor]:
        starts = self._session.seeds
        given = zip(self.made.outputs, gradients, self.outputs, strict=True)
        return {
            gradient_name(name): zeros if gradient is None else gradient
            for name, gradient, zeros in given
            if name in starts
        }


class StepPlace(NamedTuple):
    """Where a parameter or buffer is: which of several stages has it, under which name."""

    stage: int
    path: str


class TrainedStages:
    """Stages one after another, of which the last one gets the targets, too."""

    def __init__(self, stages: Sequence[TrainedStage]) -> None:
        self._stages = tuple(stages)
        self.outputs = self._stages[-1].outputs

    def forward(
        self, sample: Sequence[torch.Tensor]
    ) -> tuple[Sequence[torch.Tensor], tuple[ForwardRun, ...]]:
        """Return the outputs for one sample, and what its backward run needs.

        Raises as `TrainedStage.forward` does.
        """
        count, last = self._stages[0].inputs, self._stages[-1]
        found, targets, runs = sample[:count], sample[count:], []
        for stage in self._stages:
            found, run = stage.forward((*found, *targets) if stage is last else found)
            runs.append(run)
        return found, tuple(runs)

    def backward(
        self, runs: Sequence[ForwardRun], gradients: Sequence[torch.Tensor | None] | None
    ) -> Sequence[torch.Tensor | None]:
        """Add up the gradients of parameters, and return those of the inputs.

        `gradients` are those of the outputs; without them it starts from ones.
        """
        for stage, run in zip(reversed(self._stages), reversed(runs), strict=True):
            gradients = stage.backward(run, gradients)
        assert gradients is not None
        return gradients

    def begin(self) -> None:
        """Forget that forward runs have no backward runs yet."""
        for stage in self._stages:
            stage.begin()

    def zero_gradients(self) -> None:
        """Let gradients add up from zero."""
        for stage in self._stages:
            stage.zero_gradients()

    def optimize(self, rate: float) -> None:
        """Update the parameters by the optimizer, with this learning rate."""
        for stage in self._stages:
            stage.optimize(rate)

    def find(self, place: StepPlace) -> torch.Tensor | None:
        """Return a copy of what is there, None for nothing."""
        return self._stages[place.stage].find(place.path)

    def finder(
        self, places: Mapping[str, StepPlace]
    ) -> Callable[[], dict[str, torch.Tensor | None]]:
        """Return what gives copies of what is at these places, by the names of these."""
        apart = [
            (stage, {name: place.path for name, place in places.items() if place.stage == index})
            for index, stage in enumerate(self._stages)
        ]
        wanted = [(stage, (*own,), (*own.values(),)) for stage, own in apart if own]

        def find() -> dict[str, torch.Tensor | None]:
            found: dict[str, torch.Tensor | None] = {}
            for stage, names, paths in wanted:
                found.update(zip(names, stage.find_all(paths), strict=True))
            return found

        return find

    def gradient(self, place: StepPlace) -> torch.Tensor | None:
        """Return a copy of the gradient of the parameter there, None where it has none."""
        return self._stages[place.stage].find(gradient_name(place.path))

    def write(self, place: StepPlace, value: torch.Tensor) -> None:
        """Overwrite what is there. Raises an error of the API for what does not fit."""
        self._stages[place.stage].write(place.path, value)

    def close(self) -> None:
        """Give back the memory of the device."""
        for stage in self._stages:
            stage.close()
