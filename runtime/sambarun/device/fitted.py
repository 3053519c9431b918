"""What of a program runs while some argins are zero and others are not, and the sessions for it.

A section runs the first of its programs that fits this host and the argins. One that leaves inputs
or outputs out is what the section is then: nobody else has to know that there are others.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import onnxruntime

import pef
from pef.outside import outside_references
from pef.states import ARGIN_VARIANTS, RECOMPUTE, States
from pef.wording import listed
from sambarun.errors import RunError
from sambarun.linking.schedule import Unit
from sambarun.sessions.making import Store
from sambarun.sessions.opening import IncompleteError, create_session
from sambarun.sessions.ort_errors import if_older
from sambarun.sessions.ports import Compiled, port_problems
from sambarun.sessions.provider import CPU

from .image import Image
from .weights import add_weights

if TYPE_CHECKING:
    from sambarun.linking.linker import Part


# What one session may hold of different types.
_PASSES = {pef.SectionType.FWD, pef.SectionType.BCKWD}


def asked_by(program: pef.Program) -> tuple[int, ...]:
    """Return the argins by which sections of `program` choose what they run."""
    if ARGIN_VARIANTS not in program.requires.features:
        return ()
    variants = [variant for section in program.sections for variant in section.variants]
    return tuple(sorted({s for each in variants for s in (*each.zeros, *each.nonzeros)}))


class Fitted:
    """An image while `zeros`, of the argins that choose programs, are zero, and no others.

    `program` is the image's with sections that have the ports of what they run now. With a folder
    for `profiles` sessions are made anew, each for a section, and keep the times of operators.
    """

    def __init__(self, image: Image, zeros: frozenset[int], profiles: str = "") -> None:
        self.image = image
        self.tuning = image.tuning._replace(profiles=profiles)
        self._sessions: Store[Compiled] = Store() if profiles else image.sessions
        self.profiled: dict[int, Compiled] = {}
        """The sessions whose times of operators are kept, by section."""
        self.program = _narrowed(image, zeros)
        self._imports: dict[pef.DataRef, dict[str, int]] = {}

    @property
    def states(self) -> States:
        """What the program holds from run to run."""
        return self.image.states

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
    def kernels(self) -> dict[int, list[pef.HostKernel]]:
        """The host kernels of each section that has some."""
        found: dict[int, list[pef.HostKernel]] = {}
        for row in self.program.host_kernels:
            found.setdefault(row.section, []).append(row)
        return found

    def program_of(self, section: int) -> pef.SectionProgram:
        """Return the program that section number `section` runs."""
        variants, programs = self.program.sections[section].variants, self.program.programs
        return programs[_first_for(self.image, section, variants, programs)]

    def compile(self, unit: Unit, sessions: int) -> Compiled:
        """Return the session of `unit`, made if need be beside about `sessions` others.

        The content of its weights is checked in the background: `checks.join` before believing
        any result. Raises `RunError` if the unit is damaged or onnxruntime refuses it, and
        `IncompleteError` for linked sections that the provider cannot run whole. A single one that
        it cannot is run by the processor.
        """
        make = partial(self._compile, unit, sessions)
        found = self._sessions.get(self._key(unit), make)
        self._check_ports(unit, found)
        if self.tuning.profiles:
            self.profiled[unit.sections[0]] = found
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
                f"{self.image.describe(unit)} does not fit its program, which {listed(problems)}; "
                "compile the model again."
            )

    def _key(self, unit: Unit) -> tuple[object, ...]:
        """Return what decides a unit's session: equal sections with equal weights share one."""
        if len(unit.sections) == 1:
            section = self.program.sections[unit.sections[0]]
            key = (self.program_of(unit.sections[0]), section.weights)
            return (*key, unit.sections) if self.tuning.profiles else key
        return (unit.sections, unit.outputs, *map(self.program_of, unit.sections))

    def _compile(self, unit: Unit, sessions: int) -> Compiled:
        symbols = self.program.symbols
        self.image.check_weights(unit)
        if len(unit.sections) == 1:
            section = self.program.sections[unit.sections[0]]
            program = self.program_of(unit.sections[0])
            stored = self._graph(unit.sections[0])
            graph: bytes | memoryview = stored
            if self.tuning.profiles:
                # Imported here: few runs are profiled.
                from sambarun.linking.nodes import numbered

                graph = numbered(stored)
            weights = list(zip(program.weights, section.weights, strict=True))
            inputs, outputs = program.inputs, program.outputs
        else:
            results = self._result_names(unit)
            inputs = tuple(symbols[index].name for index in unit.inputs)
            outputs = tuple(results.get(index, symbols[index].name) for index in unit.outputs)
            weights = [(symbols[index].name, index) for index in unit.weights]
            # Imported here: a program of one section starts faster without it.
            from sambarun.linking.linker import link

            graph = link([self._part(index, results) for index in unit.sections], outputs)
        model = add_weights(
            graph, ((name, symbols[index]) for name, index in weights), self.image.file
        )
        try:
            session = self._open(model, unit, sessions)
        except RunError as error:
            self.image.check_identity()  # a file that is gone explains what is refused
            if isinstance(error, IncompleteError):
                raise
            what = self.image.describe(unit)
            cure = if_older(dict(self.image.program.producer.libraries))
            raise RunError(f"{what} cannot be loaded: {error}{cure}") from error
        self.image.check_identity()
        return Compiled(session, inputs, outputs)

    def _open(self, model: bytes, unit: Unit, sessions: int) -> onnxruntime.InferenceSession:
        """Return the session of a section, the processor's where the provider cannot run it all."""
        folder, tuning = os.path.dirname(self.image.file.path), self.tuning
        try:
            return create_session(model, folder, tuning, sessions)
        except IncompleteError:
            if len(unit.sections) > 1:
                raise  # some of them may be for the provider
        return create_session(model, folder, tuning._replace(provider=CPU), sessions)

    def _graph(self, index: int) -> memoryview:
        """Return the checked graph of section `index`, which reads no other file."""
        ref = self.program_of(index).graph
        who = f"The program of section {index} '{self.program.sections[index].name}'"
        try:
            graph = self.image.file.bytes(ref)
        except pef.PefError as error:
            raise RunError(f"{who} is damaged: {error}") from error
        if ref not in self.image.contained:
            if found := outside_references(graph):
                raise RunError(f"{who} {listed(found)}, which no program may.")
            self.image.contained.add(ref)
        return graph

    def _opsets(self, index: int) -> dict[str, int]:
        place = self.program_of(index).graph
        if place not in self._imports:
            # Imported here, as the linker is.
            from sambarun.linking.linker import opset_imports

            self._imports[place] = opset_imports(self._graph(index))
        return self._imports[place]

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
        program = self.program_of(index)
        symbols = self.program.symbols
        # Imported here, as the linker is.
        from sambarun.linking.linker import Part

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


def _narrowed(image: Image, zeros: frozenset[int]) -> pef.Program:
    """Return the program of `image` with the ports that sections have while `zeros` are zero."""
    program = image.program
    if ARGIN_VARIANTS not in program.requires.features:
        return program
    programs = [*program.programs]
    sections = []
    for at, section in enumerate(program.sections):
        if any(each.zeros or each.nonzeros for each in section.variants):
            holding = (each for each in section.variants if _holds(each, zeros))
            number = _first_for(image, at, holding, programs)
            section, chosen = _without_absent(section, programs[number], len(programs))
            programs.append(chosen)
        sections.append(section)
    return replace(program, sections=tuple(sections), programs=tuple(programs))


def _holds(variant: pef.Variant, zeros: frozenset[int]) -> bool:
    return zeros.issuperset(variant.zeros) and zeros.isdisjoint(variant.nonzeros)


def _first_for(
    image: Image,
    number: int,
    variants: Iterable[pef.Variant],
    programs: Sequence[pef.SectionProgram],
) -> int:
    """Return the first program of `variants`, those of section `number`, that this machine runs."""
    for variant in variants:
        requires = programs[variant.program].requires
        if not requires or image.features.issuperset(requires):
            return variant.program
    name = image.program.sections[number].name
    raise RunError(f"Section {number} '{name}' has no program for this machine.")


def _without_absent(
    section: pef.Section, program: pef.SectionProgram, number: int
) -> tuple[pef.Section, pef.SectionProgram]:
    """Return `section` as it is when it runs `program`, alone and under this `number`."""
    inputs = [at for at, name in enumerate(program.inputs) if name]
    outputs = [at for at, name in enumerate(program.outputs) if name]
    kept = ((source, target) for source, target in section.in_place if target in outputs)
    return (
        replace(
            section,
            variants=(pef.Variant(number),),
            inputs=tuple(section.inputs[at] for at in inputs),
            outputs=tuple(section.outputs[at] for at in outputs),
            in_place=tuple((inputs.index(s), outputs.index(t)) for s, t in kept if s in inputs),
        ),
        replace(
            program,
            inputs=tuple(program.inputs[at] for at in inputs),
            outputs=tuple(program.outputs[at] for at in outputs),
        ),
    )


def _named(
    formal: tuple[str, ...], indices: tuple[int, ...], symbols: tuple[pef.Symbol, ...]
) -> dict[str, str]:
    return {name: symbols[index].name for name, index in zip(formal, indices, strict=True)}
