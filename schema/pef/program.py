"""The content of a PEF as frozen dataclasses: what the compiler emits and the runtime executes.

Here is what runs, and `Program`, which holds everything; `symbols` has what it runs on: the memory.

The tables of `pef.fbs` mirror these classes one to one. A `Program` refers to its rows by index
(`Section.inputs` holds indices into `Program.symbols`, and so on), never by object, so that a
program can be compared, hashed and stored without following pointers.

Sizes and addresses are in bytes, latencies in seconds. Element types are ONNX's numbers
(`pef.dtypes` has their names and sizes).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, ClassVar, NoReturn

from .container import DataRef, Segment
from .costs import DeviceNumber, Estimate
from .marks import Json, Nameless, ProgramIndex, SectionIndex, SymbolIndex
from .symbols import Allocation, Region, Symbol


class SectionType(IntEnum):
    """What a section is for; a section has exactly one type."""

    FWD = 0
    BCKWD = 1
    OPT = 2
    ZEROGRAD = 3
    REDUCE = 4
    GRADNORM = 5


class GraphRole(IntEnum):
    """What a named graph does with its model: a training step has its evaluation beside it."""

    INFERENCE = 0
    TRAIN = 1
    EVAL = 2


class CallForm(IntEnum):
    """How the runtime has to call a program, chosen at compile time.

    `BOUND`: every input and output is a tensor; static ones are bound to planned addresses,
    those whose size is known only at run time are passed on as values.
    `VALUES`: some output is not a tensor (sequence, optional, string), values are passed on.
    `HOST`: an input or output can only be made by the caller from Python objects.
    """

    BOUND = 0
    VALUES = 1
    HOST = 2


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of the compiled graph: the name of its node and what it computes.

    `node` is its position among the nodes of the section's portable program, which has no names of
    nodes. Nodes that no operator stands for are copies of constants and of arithmetic on shapes.
    `flops` is its work, `pcus` its share of the compute units of the section: both are modelled.
    `declared` are the element types that the model has its results in, where kernels of the host
    give more bits: one for each, 0 where they are as they are; empty where all are.
    """

    name: str
    op_type: str
    node: int
    flops: int = 0
    pcus: int = 0
    declared: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FusionGroup:
    """Operators mapped together as one pipelined kernel."""

    name: str
    operators: tuple[Operator, ...]


@dataclass(frozen=True, slots=True)
class SectionProgram:
    """An ONNX graph that a section runs, with formal tensor names.

    `graph` is a serialised ModelProto. Its `graph.input` are `inputs`, its `graph.output` are
    `outputs`, in this order. The names in `weights` are used by nodes but defined nowhere in the
    stored bytes: the loader adds them as initializers that point into the file.
    `requires` lists host features a variant needs (empty for the portable program). A program that
    runs only while some argins are zero may lack inputs and outputs of its section: their names
    are empty. What it does not put out, a state, stays as it is.
    """

    graph: DataRef
    inputs: tuple[str, ...]
    weights: tuple[str, ...]
    outputs: tuple[str, ...]
    call_form: CallForm = CallForm.BOUND
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Variant:
    """One program a section can run; the first that fits host and argins is taken.

    It fits while all argins in `zeros` are zero and all in `nonzeros` are not: symbol indices.
    """

    program: ProgramIndex
    zeros: tuple[SymbolIndex, ...] = ()
    nonzeros: tuple[SymbolIndex, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """The unit of execution.

    `inputs`, `weights` and `outputs` are symbol indices, in the order of the formal names of the
    section's programs; the portable program is the first that requires nothing of host or argins.
    `in_place` pairs positions (input, output) that share an allocation.
    A REDUCE section has no variants: it lists the symbols to reduce as its inputs.
    """

    name: str
    type: SectionType
    variants: tuple[Variant, ...]
    inputs: tuple[SymbolIndex, ...]
    weights: tuple[SymbolIndex, ...]
    outputs: tuple[SymbolIndex, ...]
    groups: tuple[FusionGroup, ...]
    estimate: Estimate
    in_place: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Port:
    """A name of the model's signature and the symbol behind it.

    `gradient` is the symbol that holds the gradient of an output, from which the backward pass
    starts, or that of an input, which it ends with.
    """

    name: str
    symbol: SymbolIndex
    gradient: SymbolIndex | None = None


@dataclass(frozen=True, slots=True)
class NamedGraph:
    """A signature over a range of the schedule.

    `model` is the name of its model where a program has several, and empty in a program of one. The
    graphs of one model have different roles. `name` is how the graph is called.
    With each of `chip_calls` the next chip of a pipeline begins, on memory of its own. With each of
    `stage_calls` planning began anew though the type of sections stays: where somebody asked for a
    break, or where what reads gradients is cut as they are reduced.
    Where regions were chosen by cost, `policy_latency` is the modelled seconds of its calls with
    all in HBM but what moves the fewest bytes, weights last. Else it is 0.
    """

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    first_call: int
    calls: int
    model: str = ""
    role: GraphRole = GraphRole.INFERENCE
    policy_latency: float = 0.0
    chip_calls: tuple[int, ...] = ()
    stage_calls: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Argin:
    """A scalar given at run time; `default` is its value at compile time.

    `option` says what it is, as optimizers and layers call it, and so which numbers it may be (see
    `pef/hyperparameters.py`): `lr`, `p`, `seed`. `group` says whose it is: that of parameters with
    one optimizer, or of a dropout; empty for one of the whole program.
    """

    name: str
    symbol: SymbolIndex
    default: float
    group: str = ""
    option: str = ""


@dataclass(frozen=True, slots=True)
class HostKernel:
    """A step that is no ONNX graph, from a closed table; `parameters` is a JSON object."""

    kind: str
    section: SectionIndex
    inputs: tuple[SymbolIndex, ...]
    outputs: tuple[SymbolIndex, ...]
    parameters: Json = "{}"


@dataclass(frozen=True, slots=True)
class Alias:
    """A further name of a symbol.

    Without `api` the model itself has the name (tied weights), and checkpoints have it too. Else
    that API calls the symbol so (`samba`: `linear__weight` for `weight` of the model `linear`).
    """

    name: str
    symbol: SymbolIndex
    api: str = ""


@dataclass(frozen=True, slots=True)
class Producer:
    """Where a program comes from. Holds no path, host or time, so equal inputs give equal bytes.

    `options` is a JSON object with sorted keys. `source` is the name of the model's file, without
    its folder and suffix, or of its graph where there was no file; `source_hash` the SHA-256 in hex
    of that file, or of the model without its weights. `libraries` are pairs of name and version,
    sorted.
    """

    tool: str
    version: str
    options: Json
    source: str = ""
    source_hash: str = ""
    libraries: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Requirements:
    """What a runtime needs: opset version per domain (sorted), and names of needed features.

    A runtime that does not know one of `features` refuses the program.
    """

    opsets: tuple[tuple[str, int], ...] = ()
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """Everything a PEF holds. `schedule` lists section indices; a call's id is its position."""

    producer: Producer
    requires: Requirements
    arch: str
    regions: tuple[Region, ...]
    allocations: Annotated[tuple[Allocation, ...], Nameless()]
    symbols: tuple[Symbol, ...]
    programs: Annotated[tuple[SectionProgram, ...], Nameless()]
    sections: tuple[Section, ...]
    schedule: tuple[SectionIndex, ...]
    graphs: tuple[NamedGraph, ...]
    segments: tuple[Segment, ...]
    argins: tuple[Argin, ...] = ()
    host_kernels: tuple[HostKernel, ...] = ()
    aliases: tuple[Alias, ...] = ()
    warnings: tuple[str, ...] = ()
    device: tuple[DeviceNumber, ...] = ()

    def __repr__(self) -> str:
        """Return what it is in a line; `pef.report` has all of it as plain data."""
        from .text import name_text, plural  # which runs of programs do without

        rows = ("section", self.sections), ("call", self.schedule), ("symbol", self.symbols)
        counted = ", ".join(plural(len(found), word) for word, found in rows)
        name = name_text(self.producer.source) if self.producer.source else "a model"
        return f"<pef.Program {name} for {name_text(self.arch)}: {counted}>"

    def __reduce__(self) -> NoReturn:
        """Raise `TypeError`: what it holds may lie in a file that is mapped."""
        raise TypeError(
            "a pef.Program is not copied or pickled, as nothing changes it: save(path) it, and "
            "give another process the path"
        )

    _repr_html_: ClassVar[Callable[[Program], str]]
    """What notebooks show. `pef` has it, as all of a report stands behind it."""
    save: ClassVar[Callable[[Program, str | os.PathLike[str]], None]]
    """Writes the program to a path. `pef.writer` has it, which knows this class."""
