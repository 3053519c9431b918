"""An open PEF and the sessions made from it: what an executable and its clones share."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnxruntime

import pef
from pef import dtypes
from pef.defaults import Default, decode
from pef.outside import outside_references
from pef.states import RECOMPUTE, States, states_of
from pef.wording import listed

from .arena import begin_arena
from .arrays import Array, address_of
from .checks import Checks
from .errors import RunError
from .host_features import host_features
from .memory import Tensor
from .ports import port_problems
from .schedule import Unit
from .sessions import Tuning, create_session
from .turns import Mutex
from .weights import add_weights, static_shape

if TYPE_CHECKING:
    from .linker import Part


# What one session may hold of different types.
_PASSES = {pef.SectionType.FWD, pef.SectionType.BCKWD}


class Compiled(NamedTuple):
    """A unit's session. `inputs` and `outputs` are its names of the unit's symbols, in order."""

    session: onnxruntime.InferenceSession
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Image:
    """An open PEF and its sessions. Threads may share it; the last user closes the file.

    A user is whatever `share` and `release` are given. One that was forgotten counts no more.
    """

    def __init__(self, file: pef.PefFile, tuning: Tuning) -> None:
        self.file = file
        self.program = file.program
        self.tuning = tuning
        self.checks = Checks(file)
        self._clean_up: Callable[[], object] | None = None
        self._users: weakref.WeakSet[object] = weakref.WeakSet()
        self._one = Mutex()
        self._sessions: dict[tuple[object, ...], Compiled] = {}
        self._imports: dict[int, dict[str, int]] = {}
        self._contained: set[int] = set()  # programs that were found to read no other file
        begin_arena()

    def share(self, user: object) -> None:
        """Add a user, who must `release` too."""
        with self._one:
            self._users.add(user)

    def release(self, user: object) -> None:
        """Close the file and drop the sessions if this was the last user; twice does no harm."""
        with self._one:
            self._users.discard(user)
            if not self._users:
                self.close()

    def close(self) -> None:
        """Close the file and drop the sessions; twice does no harm."""
        self._sessions.clear()
        begin_arena()  # the process would keep the last one
        self.checks.wait()
        self.file.close()
        if self._clean_up is not None:
            self._clean_up()

    def adopt(self, folder: str) -> None:
        """Remove `folder` when the last user is gone, at the latest when the process ends."""
        # Imported here: programs from files, the common case, start faster without it.
        import shutil

        self._clean_up = weakref.finalize(self, shutil.rmtree, folder, True)

    def joinable(self, section: int, following: int) -> bool:
        """Tell whether two sections that follow each other may become one session."""
        types = {self.program.sections[index].type for index in (section, following)}
        if len(types) > 1 and (types != _PASSES or RECOMPUTE in self.program.requires.features):
            return False  # what updates parameters or gradients stays apart
        if pef.SectionType.REDUCE in types:
            return False  # it has no graph
        one, other = self._opsets(section), self._opsets(following)
        return all(other.get(domain, version) == version for domain, version in one.items())

    @cached_property
    def states(self) -> States:
        """What the program holds from run to run."""
        return states_of(self.program)

    @cached_property
    def kernels(self) -> dict[int, list[pef.HostKernel]]:
        """The host kernels of each section that has some."""
        found: dict[int, list[pef.HostKernel]] = {}
        for row in self.program.host_kernels:
            found.setdefault(row.section, []).append(row)
        return found

    def program_of(self, section: int) -> pef.SectionProgram:
        """Return the program that section number `section` runs on this machine."""
        return self.program.programs[self._variant(section)]

    def compile(self, unit: Unit, sessions: int) -> Compiled:
        """Return the session of `unit`, made if need be beside about `sessions` others.

        The content of its weights is checked in the background: `checks.join` before believing
        any result. Raises `RunError` if the unit is damaged or onnxruntime refuses it.
        """
        with self._one:
            key = self._key(unit)
            found = self._sessions.get(key)
            if found is None:
                found = self._sessions[key] = self._compile(unit, sessions)
        self._check_ports(unit, found)
        return found

    def _check_ports(self, unit: Unit, compiled: Compiled) -> None:
        """Raise `RunError` where the session has other inputs and outputs than the unit."""
        symbols = self.program.symbols
        inputs, outputs = (
            [(name, symbols[index]) for name, index in zip(names, indices, strict=True)]
            for names, indices in (
                (compiled.inputs, unit.inputs),
                (compiled.outputs, unit.outputs),
            )
        )
        if problems := port_problems(compiled.session, inputs, outputs):
            raise RunError(
                f"{self.describe(unit)} does not fit its program, which {listed(problems)}; "
                "compile the model again."
            )

    def _key(self, unit: Unit) -> tuple[object, ...]:
        """Return what decides a unit's session: equal sections with equal weights share one."""
        if len(unit.sections) == 1:
            section = self.program.sections[unit.sections[0]]
            return (self._variant(unit.sections[0]), section.weights)
        return (unit.sections, unit.outputs)

    def _compile(self, unit: Unit, sessions: int) -> Compiled:
        symbols = self.program.symbols
        self._check_weights(unit)
        if len(unit.sections) == 1:
            section = self.program.sections[unit.sections[0]]
            program = self.program.programs[self._variant(unit.sections[0])]
            graph: bytes | memoryview = self._graph(unit.sections[0])
            weights = list(zip(program.weights, section.weights, strict=True))
            inputs, outputs = program.inputs, program.outputs
        else:
            results = self._result_names(unit)
            inputs = tuple(symbols[index].name for index in unit.inputs)
            outputs = tuple(results.get(index, symbols[index].name) for index in unit.outputs)
            weights = [(symbols[index].name, index) for index in unit.weights]
            # Imported here: a program of one section starts faster without it.
            from .linker import link

            graph = link([self._part(index, results) for index in unit.sections], outputs)
        model = add_weights(graph, ((name, symbols[index]) for name, index in weights), self.file)
        try:
            session = create_session(model, os.path.dirname(self.file.path), self.tuning, sessions)
        except RunError as error:
            self._check_identity()  # a file that is gone explains what onnxruntime complains about
            raise RunError(f"{self.describe(unit)} cannot be loaded: {error}") from error
        self._check_identity()
        return Compiled(session, inputs, outputs)

    def content(self, symbol: pef.Symbol) -> Tensor | Array:
        """Return what the file holds for `symbol`, checked: a tensor over the map, or strings."""
        if symbol.data is None:
            raise RunError(f"The program holds no content for '{symbol.name}'.")
        try:
            data = self.file.bytes(symbol.data)
            found = _decode(data, symbol)
        except pef.PefError as error:
            raise RunError(f"The content of '{symbol.name}' is damaged: {error}") from error
        if isinstance(found.elements, tuple):
            return np.array(found.elements, object).reshape(found.shape)
        raw = np.frombuffer(found.elements, np.uint8)
        return Tensor(raw, address_of(raw), symbol.dtype, found.shape)

    def describe(self, unit: Unit) -> str:
        """Return what to call `unit` in a message."""
        first = self.program.sections[unit.sections[0]]
        if len(unit.sections) == 1:
            return f"Section {unit.sections[0]} '{first.name}'"
        last = self.program.sections[unit.sections[-1]]
        return (
            f"The linked sections {unit.sections[0]} '{first.name}' to "
            f"{unit.sections[-1]} '{last.name}'"
        )

    def _check_weights(self, unit: Unit) -> None:
        """Start to check the content of the unit's weights."""
        self.checks.start(
            (symbol.data, f"Weight '{symbol.name}'")
            for symbol in (self.program.symbols[index] for index in unit.weights)
            if symbol.data is not None
        )

    def _check_identity(self) -> None:
        """Make sure that onnxruntime, which opens the file by its path, got the same file."""
        try:
            status = os.stat(self.file.path)
        except OSError as error:
            raise RunError(f"{self.file.path} disappeared while it was loaded.") from error
        if (status.st_dev, status.st_ino) != self.file.identity:
            raise RunError(f"{self.file.path} was replaced while it was loaded; load it again.")

    def _variant(self, index: int) -> int:
        """Return the program that section `index` runs on this machine."""
        section = self.program.sections[index]
        for variant in section.variants:
            requires = self.program.programs[variant.program].requires
            if variant.mode is pef.ProgramMode.TRAIN:
                continue
            if not requires or self._features.issuperset(requires):
                return variant.program
        raise RunError(f"Section {index} '{section.name}' has no program for this machine.")

    @cached_property
    def _features(self) -> frozenset[str]:
        """What this host has of what programs may require."""
        return host_features(self.tuning)

    def _graph(self, index: int) -> memoryview:
        """Return the checked graph of section `index`, which reads no other file."""
        variant = self._variant(index)
        who = f"The program of section {index} '{self.program.sections[index].name}'"
        try:
            graph = self.file.bytes(self.program.programs[variant].graph)
        except pef.PefError as error:
            raise RunError(f"{who} is damaged: {error}") from error
        if variant not in self._contained:
            if wishes := outside_references(graph):
                raise RunError(f"{who} {listed(wishes)}, which no program may.")
            self._contained.add(variant)
        return graph

    def _opsets(self, index: int) -> dict[str, int]:
        program = self._variant(index)
        if program not in self._imports:
            from .linker import opset_imports

            self._imports[program] = opset_imports(self._graph(index))
        return self._imports[program]

    def _result_names(self, unit: Unit) -> dict[int, str]:
        """Return what to call the new values of the symbols that `unit` updates in place."""
        updated = set(unit.inputs).intersection(unit.outputs)
        if not updated:
            return {}
        symbols = self.program.symbols
        mark = "'"
        while any(symbol.name.endswith(mark) for symbol in symbols):
            mark += "'"
        return {index: symbols[index].name + mark for index in updated}

    def _part(self, index: int, results: Mapping[int, str]) -> Part:
        """Return section `index` as the linker wants it; `results` renames some of its outputs."""
        section = self.program.sections[index]
        program = self.program.programs[self._variant(index)]
        symbols = self.program.symbols
        from .linker import Part

        return Part(
            label=section.name,
            graph=self._graph(index),
            inputs=_named(program.inputs, section.inputs, symbols),
            weights=_named(program.weights, section.weights, symbols),
            outputs={
                formal: results.get(symbol, symbols[symbol].name)
                for formal, symbol in zip(program.outputs, section.outputs, strict=True)
            },
        )


def _decode(data: memoryview, symbol: pef.Symbol) -> Default:
    """Return the content of `symbol`, which brings its shape where the symbol leaves it open."""
    size = dtypes.static_nbytes(symbol.dtype, symbol.shape)
    if size is None:
        return decode(data, symbol)
    if size != len(data):
        raise pef.PefError(f"it has {len(data)} bytes, its shape and type need {size}")
    return Default(static_shape(symbol) or (), data)


def _named(
    formal: tuple[str, ...], indices: tuple[int, ...], symbols: tuple[pef.Symbol, ...]
) -> dict[str, str]:
    return {name: symbols[index].name for name, index in zip(formal, indices, strict=True)}
