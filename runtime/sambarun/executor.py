"""The executable: a loaded program that runs on the caller's arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import NoReturn, Self, Unpack

import pef
from pef.arguments import COUNT, FLAG, NAME, PATH, instance, passing_on, require_known
from pef.states import has_states

from .arrays import Array
from .device.footprint import MemoryUse
from .device.image import Image
from .errors import NO_STATES, RunError, require, tell_of_another
from .execution.host_steps import Host, Reducer
from .execution.profiler import Profile
from .execution.profiling import profiled, profiled_with_operators
from .execution.workspace import Workspace, WorkspaceLock
from .linking.schedule import Chosen, resolve
from .selection import Selection, SelectionWords
from .training import checkpoint
from .training.classes import with_ranges
from .training.data import Cursor
from .training.trainer import Trainer, training_graph

# What `state` returns.
_SHOWN = (pef.SymbolKind.WEIGHT, pef.SymbolKind.BUFFER, pef.SymbolKind.OPT_STATE)

_SELECTION = instance(Selection, "a sambarun.Selection")
_PLAIN = frozenset({str, bool, type(None)})


class Executable:
    """A program in memory, made by `load`.

    One executable has one memory, so one run at a time: a second thread that calls `run` meanwhile
    gets a `RunError`. `clone` makes another executable that shares the sessions and the weights.
    The executable owns all memory its sessions use; the caller's arrays are borrowed until the call
    that is given them returns. It is a context manager; `close` gives back the memory.

    After any exception, an interrupt included, it can be used again. A run that broke off has been
    made or has not; if neither is so of the states of a training program, what needs them raises a
    `RunError` that names them until `load` or `write` gives them other values.

    It is of the process that loaded it: one that is forked from there gets a `RunError`.
    """

    def __init__(self, image: Image, link: bool, reducer: Reducer | None = None) -> None:
        image.share(self)
        self._image = image
        self._link = link
        self._host = Host(reducer=reducer)
        self._lock = WorkspaceLock(Workspace(image, self._host))
        self._trainers: dict[str | None, Trainer] = {}
        self._selections: dict[Selection, Chosen] = {}
        self._by_words: dict[tuple[tuple[str, object], ...], Chosen] = {}

    def __repr__(self) -> str:
        """Return what it is in a line."""
        return f"<sambarun.Executable of {self.program!r}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the program, and what it is made of."""
        return f"<p><b>Executable</b></p>{self.program._repr_html_()}"

    @property
    def program(self) -> pef.Program:
        """The program as the file describes it."""
        return self._image.program

    @passing_on(Selection)
    def prepare(
        self,
        selection: Selection | None = None,
        **words: Unpack[SelectionWords],
    ) -> None:
        """Do what the first `run` of the same sections would do before it computes anything."""
        with self._held() as workspace:
            chosen = self._select(Executable.prepare, selection, words)
            workspace.plan(chosen, self._link, hand=True)
            self._image.checks.join()

    @passing_on(Selection)
    def run(
        self,
        inputs: Mapping[str, object],
        selection: Selection | None = None,
        *,
        copy: bool = True,
        hyperparams: Mapping[str, float] | None = None,
        **words: Unpack[SelectionWords],
    ) -> dict[str, Array]:
        """Run the schedule, or what is selected of it, and return the results by name.

        `inputs` holds a value for each of the model's inputs: an array of exactly the expected type
        and shape, a list for a sequence, a dict for a map, None for an absent optional. Inputs with
        a default may be left out. `selection` says what to run; so do arguments that have the names
        of its fields, in its place. What selected sections read from others is taken from earlier
        runs of selected sections (a linked run of the whole schedule keeps only its results), or
        from `inputs` by the name of the symbol.

        Returns the model's outputs that were computed, or the outputs of the selected sections if
        there are none among them. Arrays are the caller's own; large ones (from 1 MiB) of a whole
        model that infers are handed over without a copy, so that `read` finds no value of them
        then. With `copy=False` all stay in the executable's memory, and arrays may be views of it,
        which the next run overwrites.

        A training program runs a whole training step if nothing is selected. FWD alone evaluates,
        with running statistics and without dropout, unless `train` is set; then it is the forward
        part of a step, which BCKWD and OPT may follow in runs of their own. States (parameters,
        optimizer state) are no results, `state` has them; BCKWD gives gradients, and a loss has
        the gradient 1 unless `inputs` holds another as `<loss>__grad`. `hyperparams` sets argins by
        name (`lr`, `adamw.lr`) and is kept until it is set anew; `seed` begins the masks anew.

        Raises `RunError` for wrong inputs (all problems at once), for unknown sections, for damage
        in the file, and when onnxruntime fails.
        """
        with self._held() as workspace:
            chosen = self._select(Executable.run, selection, words)
            if type(copy) not in (bool,):  # `require` takes long beside a short run
                require(copy=(copy, FLAG))
            if hyperparams is not None:
                workspace.set_hyperparams(hyperparams)
            plan = workspace.plan(chosen, self._link, hand=copy)
            workspace.attach(plan, inputs)
            try:
                workspace.runs.run(plan)
            except RunError as error:
                raise with_ranges(error, self.program, inputs) from error.__cause__
            return workspace.results(plan, copy)

    def step(
        self,
        inputs: Mapping[str, object] | Sequence[Mapping[str, object]],
        hyperparams: Mapping[str, float] | None = None,
        *,
        graph: str | None = None,
    ) -> dict[str, Array]:
        """Train one step and return the losses by name, as arrays of the caller's own.

        A loss is an output that starts the backward pass. Several batches, in a program compiled to
        accumulate gradients, make one step: each loss counts 1 / n of n batches, and its mean is
        returned. `hyperparams` is as in `run`, and so are the errors. `graph` is the model to train
        where the program has several; the first of them without it.
        """
        if graph is not None:
            require(graph=(graph, NAME))
        with self._held() as workspace:
            trainer = self._trainers.get(graph) or self._make_trainer(workspace, graph)
            if hyperparams is not None:
                workspace.set_hyperparams(hyperparams)
            return trainer.step(inputs)

    def state(self) -> dict[str, Array]:
        """Return copies of all parameters, buffers and optimizer state, by name.

        Those that have no values yet are left out.
        """
        with self._held(states=True) as workspace:
            return workspace.state.copy(_SHOWN)

    @property
    def argins(self) -> dict[str, float]:
        """The values of the program's hyperparameters now, by name; empty if it does not train."""
        with self._held() as workspace:
            return workspace.state.argins

    def initialize(self, seed: int) -> None:
        """Draw values for the parameters and buffers that have none, equal for equal seeds.

        Raises `RunError` for a `seed` that is no whole number from 0 to 2**63 - 1.
        """
        require(seed=(seed, COUNT))
        with self._held(states=True) as workspace:
            workspace.state.initialize(seed)

    def save(self, path: str | os.PathLike[str], cursor: Cursor | None = None) -> None:
        """Write all states, and how far training has come, to a safetensors file.

        The file is replaced whole or not at all. `cursor` says where the data stand, for `load`.
        Raises `RunError` if the file cannot be written, or if a parameter has no values yet.
        """
        require(path=(path, PATH), cursor=(cursor, instance(Cursor, "a Cursor").or_none()))
        with self._held(states=True) as workspace:
            digest = self._image.file.header.digest.hex()
            position = checkpoint.Position(self._host.clock, cursor or Cursor(), digest)
            checkpoint.save(path, workspace.state, position)

    def load(self, path: str | os.PathLike[str]) -> Cursor:
        """Take all states from a file that `save` wrote and return the cursor given there.

        A file with the parameters and buffers alone, such as PyTorch's `state_dict`, also does:
        optimizer state then starts anew and so does the cursor. Training goes on bit for bit as if
        it had not been interrupted if program, machine and threads are the same.

        A whole file of another program, such as the same model compiled for another batch size,
        loads too if all names, shapes and types fit, and gives an `OtherProgramWarning`; that of
        another optimizer does not fit. A momentum or weight decay that the other program had left
        out, as older ones do with 0, is 0 then, and the warning names it. Raises `RunError` that
        lists all that does not fit, and changes nothing then.
        """
        require(path=(path, PATH))
        with self._held(states=True) as workspace:
            position = checkpoint.load(path, workspace.state, self._host.clock)
        if position is None:
            return Cursor()
        if position.program != self._image.file.header.digest.hex():
            tell_of_another(os.fspath(path), position.lacks)
        return position.cursor

    def read(self, *names: str) -> dict[str, Array]:
        """Return copies of symbols by name, such as `<parameter>__grad` after BCKWD has run.

        Raises `RunError` that lists the names that the program does not have, or whose memory holds
        no value now.
        """
        with self._held() as workspace:
            return workspace.read(names)

    def write(self, values: Mapping[str, object]) -> None:
        """Copy values to symbols by name: what `read` reads, and inputs.

        Parameters, buffers, optimizer state, gradients and activations are what the next run reads,
        unless it computes them anew. An input that was written is read by all later runs that are
        not given another value for it, without a transfer; its memory is its own.

        Raises `RunError` that lists unknown names, constants of the program, and values of the
        wrong type or shape; nothing is written then.
        """
        with self._held() as workspace:
            workspace.write(values)

    def input_buffer(self, name: str) -> Array:
        """Return the memory in which an input stays from run to run, as `write` keeps it.

        Whatever it is filled with is what later runs read that are not given another value: small
        inputs are given faster that way than by `run`. It begins with what was written before, or
        undefined. It is valid until `close`.

        Raises `RunError` for what is no input, and for inputs without a fixed shape, of strings or
        packed elements, and those that share memory with others.
        """
        with self._held() as workspace:
            return workspace.input_buffer(name)

    def memory(self) -> MemoryUse:
        """Return what the executable holds in memory: bytes by region, and those beside them.

        After a run that means what the run needed: memory is taken when a section first needs it.
        """
        with self._held() as workspace:
            return workspace.memory_use()

    @passing_on(Selection)
    def profile(
        self,
        inputs: Mapping[str, object],
        selection: Selection | None = None,
        *,
        hyperparams: Mapping[str, float] | None = None,
        operators: bool = False,
        **words: Unpack[SelectionWords],
    ) -> Profile:
        """Run like `run`, section by section without linking, and measure each call.

        Each section runs twice before it is measured, and what that gives is thrown away: the first
        runs include work that later ones do not have to repeat. With `operators` those are measured
        too, in sessions that are made for that.
        """
        with self._held() as workspace:
            chosen = self._select(Executable.profile, selection, words)
            if chosen.reduction == "optimal":
                # One step after the other is what is measured, whoever may overtake whom.
                chosen = chosen._replace(reduction="inorder")
            if hyperparams is not None:
                workspace.set_hyperparams(hyperparams)
            require(operators=(operators, FLAG))
            measure = profiled_with_operators if operators else profiled
            return measure(self.program, workspace, chosen, inputs)

    def providers(self) -> dict[int, str]:
        """Return the execution provider that runs each section, by onnxruntime's name.

        It is the one that `load` was given, or that of the processor where the first has not all
        the kernels that the section needs. Sections without operators are left out.
        """
        with self._held() as workspace:
            return workspace.providers(range(len(self.program.sections)))

    def clone(self) -> Executable:
        """Return an executable with memory of its own that shares sessions and weights.

        Of a training program it gets copies of all states as they are now, and goes its own way.
        """
        with self._held() as workspace:
            other = Executable(self._image, self._link, self._host.reducer)
            other._take_from(workspace, self._host)
        return other

    def __reduce__(self) -> NoReturn:
        """Raise `TypeError`: it is not copied, and goes to no other process."""
        raise TypeError(
            "an Executable is not copied or pickled: clone() makes another one in this process, "
            "and another process loads the PEF itself, by its path"
        )

    def close(self) -> None:
        """Give back memory and sessions. Does nothing if already closed, or in a forked process."""
        if self._lock.close():
            self._trainers.clear()
            self._image.release(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _held(self, states: bool = False) -> WorkspaceLock:
        """Hold the workspace for one caller; `states` is for what only programs with some do."""
        if states and not has_states(self.program):
            raise RunError(NO_STATES)
        return self._lock

    def _make_trainer(self, workspace: Workspace, model: str | None) -> Trainer:
        graph = training_graph(self.program, model)
        found = self._trainers[model] = Trainer(workspace, self.program, graph, link=self._link)
        return found

    def _take_from(self, workspace: Workspace, host: Host) -> None:
        """Take over the states of another executable of the same program."""
        with self._held() as mine:
            mine.take_from(workspace)
            self._host.clock.take_from(host.clock)

    def _select(
        self, asked: Callable[..., object], selection: Selection | None, words: SelectionWords
    ) -> Chosen:
        """Return what is to run, said by a selection or by keywords that make one.

        `asked` is the function that was given these. What was chosen before is looked up: to look
        through all sections takes longer than many a run.
        """
        if selection is None:
            known = self._by_words.get((*words.items(),)) if _is_plain(words) else None
            return known or self._by_words_anew(asked, words)
        if words:
            require_known(asked, words)
            raise RunError("Give a selection, or its fields as arguments, but not both.")
        if type(selection) is not Selection:
            require(selection=(selection, _SELECTION))
        return self._selected(selection)

    def _by_words_anew(self, asked: Callable[..., object], words: SelectionWords) -> Chosen:
        require_known(asked, words)
        found = self._selected(Selection(**words))
        if _is_plain(words):
            self._by_words[(*words.items(),)] = found
        return found

    def _selected(self, selection: Selection) -> Chosen:
        found = self._selections.get(selection)
        if found is None:
            found = self._selections[selection] = resolve(self.program, selection)
        return found


def _is_plain(words: SelectionWords) -> bool:
    """Tell whether equal words mean the same: 1 and True are equal, and an iterator ends."""
    return _PLAIN.issuperset(map(type, words.values()))
