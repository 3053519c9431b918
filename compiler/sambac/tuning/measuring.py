"""The candidates of one question as small models, timed in turns in this process.

A candidate goes through the passes that it would go through in a program, and works on blocks of
channels where the program's variant for this host does; its products of matrices are as guessed.
Times are medians of runs in turns, so that what disturbs the machine disturbs all; with one thread
they are the thread's own time. All read the same operands, and turns are shuffled: what runs behind
a slow one finds less of them in a cache.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from sambac.graph.editor import Editor
from sambac.kernels.probe import RefusedError, open_fast
from sambac.ops.gradients.formulations import AnyPoint, Formulation
from sambac.passes.pipelines import SELECT_TRAINING_KERNELS, SIMPLIFY
from sambac.passes.runner import PassContext
from sambac.passes.select_kernels.choose_products import ChooseProducts
from sambac.variants.blocked import BlockConvolutions
from sambac.variants.products import WriteProducts

from .host import empty_model

_DEAR = 6.0  # what is guessed to cost more times the best guess is not tried
_SLOW = 2.0  # what takes more times the fastest in its first run has no others
_LEAST, _MOST = 3, 25  # rounds
_SAMPLE = 2e-4  # seconds; shorter runs are timed several at once


@dataclass(frozen=True)
class Bench:
    """How candidates are timed: with so many threads, on blocks of channels (0: none)."""

    threads: int
    block: int

    @property
    def clock(self) -> Callable[[], float]:
        """The clock that disturbs least: what other processes take does not count on one thread."""
        return time.thread_time if self.threads == 1 else time.perf_counter


def measure(point: AnyPoint, problem: Any, bench: Bench, seconds: float) -> dict[str, float]:
    """Return the microseconds of formulations of `problem`, in the order of their table.

    About `seconds` are taken, and some rounds at least. What is much slower than others, or has no
    kernel here, is left out, but not the guess.
    """
    begin = time.perf_counter()
    guess = point.guess(problem).name
    candidates = _fast(_candidates(point, problem, bench), guess)
    rounds, order = 0, random.Random(0)
    while candidates and rounds < _MOST:
        if rounds >= _LEAST and time.perf_counter() - begin > seconds:
            break
        for candidate in order.sample(candidates, len(candidates)):
            candidate.sample()
        rounds += 1
    return {each.name: 1e6 * median(each.times) for each in candidates}


class _Candidate:
    """A formulation as a session, bound to operands; `times` are seconds."""

    def __init__(self, name: str, run: Callable[[], None], clock: Callable[[], float]) -> None:
        self.name = name
        self.times: list[float] = []
        self._run = run
        self._clock = clock
        self._repeats = 1

    def try_out(self) -> float:
        """Return how long a run takes, after one that only warms up."""
        self._run()
        first = self._time()
        self._repeats = max(1, min(1000, int(_SAMPLE / max(first, 1e-7))))
        return first

    def sample(self) -> None:
        """Time a run."""
        self.times.append(self._time())

    def _time(self) -> float:
        begin = self._clock()
        for _ in range(self._repeats):
            self._run()
        return (self._clock() - begin) / self._repeats


def _fast(candidates: Iterator[_Candidate], guess: str) -> list[_Candidate]:
    """Return those that are worth timing, and the guess; sessions of others are gone."""
    kept: list[tuple[float, _Candidate]] = []
    for candidate in candidates:
        kept.append((candidate.try_out(), candidate))
        best = min(first for first, _ in kept)
        kept = [
            (first, each) for first, each in kept if first <= _SLOW * best or each.name == guess
        ]
    return [candidate for _, candidate in kept]


def _candidates(point: AnyPoint, problem: Any, bench: Bench) -> Iterator[_Candidate]:
    least, operands = point.guess(problem).cost(problem), _operands(point, problem)
    for form in point.fitting(problem):
        if form.cost(problem) <= _DEAR * least:
            try:
                model = candidate_model(point, form, problem, bench.block)
                yield _Candidate(form.name, _bound(model, operands, bench), bench.clock)
            except RefusedError:
                continue  # no kernel for these numbers


def _operands(point: AnyPoint, problem: Any) -> list[ort.OrtValue]:
    """Return random operands, in memory."""
    rng, dtype = np.random.default_rng(0), problem.dtype.numpy()
    made = (rng.standard_normal(shape, dtype=np.float32) for shape in point.operands(problem))
    return [ort.OrtValue.ortvalue_from_numpy(array.astype(dtype)) for array in made]


def _bound(model: bytes, operands: Sequence[ort.OrtValue], bench: Bench) -> Callable[[], None]:
    """Return what runs a model on operands."""
    session = open_fast(model, bench.threads)
    binding = session.io_binding()
    for port, value in zip(session.get_inputs(), operands, strict=True):
        binding.bind_ortvalue_input(port.name, value)
    (port,) = session.get_outputs()
    binding.bind_output(port.name)

    def run() -> None:
        session.run_with_iobinding(binding)

    return run


def candidate_model(point: AnyPoint, form: Formulation[Any], problem: Any, block: int = 0) -> bytes:
    """Return the model of one formulation, whose inputs are its operands.

    With a `block`, convolutions work on blocks of so many channels where they can. It is a program
    for processors: products that a formulation is made of have the form that is guessed for them.
    """
    model = empty_model()
    b = Editor(model)
    shapes: Mapping[str, tuple[int, ...]] = {
        f"x{number}": shape for number, shape in enumerate(point.operands(problem))
    }
    operands = [b.input(name, problem.dtype, shape) for name, shape in shapes.items()]
    model.graph.outputs.append(b.named(point.write(b, form, problem, operands), "y"))
    if not point.for_processors:
        PassContext().run(model, (*SIMPLIFY, *SELECT_TRAINING_KERNELS, ChooseProducts()))
    if block:
        BlockConvolutions(block)(model)
    WriteProducts()(model)
    made: bytes = ir.to_proto(model).SerializeToString()
    return made
