"""`sambarun --steps` (or `--epochs`) and `--eval`: train on data, evaluate, say how it went."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import sambarun
from pef.graphs import trained_models
from pef.program import SectionType
from pef.states import EVAL_GRAPH, TRAIN_GRAPH, is_training
from pef.text import name_text, plural
from pef.wording import listed
from sambarun import Executable, RunError
from sambarun.evaluation import Evaluation, evaluate
from sambarun.train_loop import Checkpoints, NotFiniteError, Run, StepError, StepResult, train
from sambarun.training.data import Batches

from .feeds import open_archive
from .results import check_checkpoint, check_ending, save
from .running import StopRequest, Words, interruptible, provider_of
from .shell import DONE, Wrong, echo
from .state_words import begin, hyperparams, memory_lines
from .targets import check_kind, check_targets
from .train_options import trains
from .train_progress import LogError, LossLog, Tally, bar

_SMALLER = "A smaller learning rate (--hyperparam lr=...) or --max-grad-norm may help."


def run_training(words: Words) -> int:
    """Train, evaluate, or both, as the command line says, and return the exit code."""
    check_kind(words["log_csv"], ".csv")
    check_targets(
        (words["log_csv"], words["save"], words["output"]),
        (words["file"], words["data"], words["eval_data"]),
    )
    # A checkpoint may take the place of the one that the run began with.
    check_targets((words["log_csv"], words["output"]), (words["load"],))
    if words["output"] is not None:
        check_ending(words["output"])
    if words["save"] is not None:
        check_checkpoint(words["save"])
    values = hyperparams(words["hyperparams"])
    # The process ends after this run, so the executable is never closed.
    executable = sambarun.load(
        words["file"],
        threads=words["threads"],
        own_process=True,
        provider=provider_of(words["provider"]),
    )
    _check_program(executable, words)
    cursor = begin(executable, words)
    if words["shuffle"] is not None:
        cursor = replace(cursor, shuffle=words["shuffle"])
    seen, unseen = words["data"], words["eval_data"]
    if not trains(words):
        seen, unseen = None, unseen or seen
    # Both are read first: after hours it would be late for a file that is not there.
    model = _model(executable, words)
    learned = _batches(executable, seen, TRAIN_GRAPH, model) if seen else None
    judged = _batches(executable, unseen, EVAL_GRAPH, model) if unseen else None
    if learned is not None:
        run = Run(_steps(words, learned), cursor, words["accumulate"] or 1, values, model)
        told = _of_another_place(run, learned)
        if told:
            echo(f"Note: --load: {told}", err=True)
        _Training(executable, learned, run, words).do()
    if judged is not None and unseen is not None:
        found = _evaluate(executable, judged, model, keep=words["output"] is not None)
        echo("\n".join(_evaluated(found, unseen, judged.size)))
        _store(found, words["output"])
    return DONE


def _steps(words: Words, batches: Batches) -> int:
    """Return how many steps to make: those of whole epochs, a last one that begins the next too."""
    if words["epochs"] is None:
        return words["steps"] or 0
    return -(-words["epochs"] * batches.count // (words["accumulate"] or 1))


def _of_another_place(run: Run, batches: Batches) -> str:
    """Say that steps such as those of `run` would not have led to where it begins, if so."""
    start, each = run.start, batches.count
    inside = start.batch < each
    if inside and start.step * run.accumulate == start.epoch * each + start.batch:
        return ""
    now = (start.epoch, start.batch) if inside else (start.epoch + 1, 0)
    return (
        f"the {plural(start.step, 'step')} before were made with another --accumulate, or with "
        f"other data than these of {plural(each, 'batch', 'batches')}; this run goes on with epoch "
        f"{now[0]}, batch {now[1]}, both counted from 0."
    )


def _check_program(executable: Executable, words: Words) -> None:
    """Raise `Wrong` for what the program was not compiled for."""
    program, file = executable.program, words["file"]
    if not is_training(program):
        raise Wrong(f"{file} was compiled for inference; compile the model with --train.")
    types = {section.type for section in program.sections}
    if trains(words) and SectionType.OPT not in types:
        raise Wrong(f"{file} updates nothing; compile the model with --optimizer.")
    if (words["accumulate"] or 1) > 1 and SectionType.ZEROGRAD not in types:
        raise Wrong(f"--accumulate: compile the model with --accumulate; {file} was not.")


def _model(executable: Executable, words: Words) -> str:
    """Return the model to train: that of --graph, else the first that trains."""
    models = trained_models(executable.program.graphs)
    asked = words["graph"]
    if asked is not None and asked not in models:
        known = ", ".join(filter(None, models)) or "one alone, which needs no --graph"
        raise Wrong(f"--graph {asked}: the models of {words['file']} that train are {known}.")
    return models[0] if asked is None else asked


def _batches(executable: Executable, path: str, graph: str, model: str) -> Batches:
    """Return the batches of a data file, and say what had to be converted."""
    cure = "training data are an .npz with an array for each input"
    with open_archive(path, cure) as arrays:
        try:
            found = Batches(
                executable.program, arrays, graph, model=model, partial=graph == EVAL_GRAPH
            )
        except RunError as error:
            raise Wrong("\n".join(f"{path}: {line}" for line in str(error).splitlines())) from error
    for note in found.notes:
        echo(f"Note: {path}: {note}", err=True)
    return found


class _Training:
    """One training run: what it reports to, and where it is kept."""

    def __init__(self, executable: Executable, batches: Batches, run: Run, words: Words) -> None:
        self._executable = executable
        self._batches = batches
        self._run = run
        self._words = words
        self._stop = StopRequest()
        self._tally = Tally(run, batches)
        self._cursor = run.start
        save = words["save"]
        self._kept = Checkpoints(executable, save, words["save_every"]) if save else None

    def do(self) -> None:
        """Train, and say how it went. Raises `RunError` for NaN and infinity."""
        try:
            interruptible(self._loop, self._stop)
        except NotFiniteError as error:
            raise RunError(f"{error} {self._what_is_left(error)}") from error
        echo("\n".join(self._summary()))
        if self._stop.cause is not None:
            raise self._stop.cause

    def _loop(self) -> None:
        log, kept = self._words["log_csv"], self._kept
        if kept is not None and not kept.exists:
            kept.keep(self._cursor)
        rows = LossLog(log, self._executable, self._cursor.step) if log else None
        try:
            with bar(self._run.steps) as show:
                for step in train(self._executable, self._batches, self._run):
                    self._after(step, rows)
                    show(self._tally.steps, self._tally.state)
                    if self._stop.is_set():
                        break
        except LogError as error:  # what was learned until then is kept all the same
            self._keep()
            raise Wrong(f"{error.message} {self._held()}".rstrip()) from error
        except StepError as error:
            raise RunError(f"{error} {self._rescued()}".rstrip()) from error
        finally:
            if rows is not None:
                rows.close()
        self._keep()

    def _keep(self) -> None:
        if self._kept is not None:
            self._kept.keep(self._cursor)

    def _rescued(self) -> str:
        """Keep what was learned before a step that failed, if that is whole; say what is held."""
        with suppress(RunError):
            self._keep()
        return self._held()

    def _after(self, step: StepResult, rows: LossLog | None) -> None:
        self._cursor = step.cursor
        self._tally.add(step)
        if rows is not None:
            rows.add(step)
        if self._kept is not None:
            self._kept.after(step, rows.flush if rows is not None else None)

    def _what_is_left(self, error: NotFiniteError) -> str:
        """Say what is left after a failure, and what may help."""
        cure = f"Mend {self._words['data']}." if error.data else _SMALLER
        return f"{self._held()} {cure}".lstrip()

    def _held(self) -> str:
        """Say what the checkpoint holds, if one is kept."""
        if self._kept is None:
            return ""
        held = self._kept.kept
        state = f"holds the state after step {held.step}" if held else "is as it was before"
        return f"{self._words['save']} {state}."

    def _summary(self) -> list[str]:
        lines = self._tally.lines(self._words["file"])
        if self._kept is not None:
            save, left = self._words["save"], self._run.steps - self._tally.steps
            cure = f"; go on with --load {save} --steps {left}" if left else ""
            lines.append(f"{save}: the state after step {self._cursor.step}{cure}")
        lines += memory_lines(self._executable)
        if self._words["log_csv"]:
            lines.append(f"{self._words['log_csv']}: {plural(self._tally.steps, 'row')}")
        return lines


def _evaluate(executable: Executable, batches: Batches, model: str, *, keep: bool) -> Evaluation:
    with bar(batches.rows) as show:
        return interruptible(
            lambda: evaluate(
                executable,
                batches,
                keep=keep,
                after=lambda rows: show(rows, lambda: "evaluating"),
                model=model,
            )
        )


def _evaluated(found: Evaluation, path: str, size: int) -> list[str]:
    """Return the averages and the accuracy in words."""
    # The rows of a batch that is not full count for nothing in an average, see `Evaluation`.
    only = "" if found.averaged == found.rows else f" (first {plural(found.averaged, 'row')})"
    parts = [f"{name_text(name)} {value:.4g}{only}" for name, value in found.means.items()]
    pair = found.classification
    if pair is not None and found.judged:
        share = f"accuracy {found.right / found.judged:.2%} ({found.right:,} of {found.judged:,}"
        parts.append(f"{share}, {name_text(pair.scores)} against {name_text(pair.labels)})")
    lines = [f"{path}: {', '.join([plural(found.rows, 'row'), *parts])}"]
    if not found.averaged:
        lines.append(f"There are no averages: a full batch has {plural(size, 'row')}.")
    return lines


def _store(found: Evaluation, output: str | None) -> None:
    """Store the results of an evaluation, those with a row for each row of the data."""
    if output is None:
        return
    names = listed([name_text(name) for name in save(found.outputs, output)], separator=", ")
    echo(f"{output}: {names or 'no results'}")
