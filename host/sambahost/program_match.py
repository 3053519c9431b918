"""What the programs of processes that train together must have in common."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch.distributed as dist

from pef.foreign import producer_options
from pef.program import Program
from pef.states import states_of
from pef.symbols import Symbol, SymbolKind

from .errors import HostError, NotReducedError
from .rendezvous import numbered


class Facts(NamedTuple):
    """A program as other processes see it: texts that are equal if the programs fit together."""

    reduces: bool
    inputs: str
    model: str
    options: str


def require_programs_match(program: Program, group: dist.ProcessGroup) -> None:
    """Raise `HostError` in all processes if their programs cannot train together.

    All processes have to call this together.
    """
    found: list[Facts | None] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, facts(program), group=group)
    gathered = [item for item in found if item is not None]
    _require_reductions(gathered)
    problems = [*_problems(gathered)]
    if problems:
        raise HostError("; ".join(problems))


def facts(program: Program) -> Facts:
    """Return what the programs of two processes are compared by."""
    types = {section.type.name for section in program.sections}
    ports = {port.symbol: None for graph in program.graphs for port in graph.inputs}
    reduced = [
        program.symbols[index]
        for section in program.sections
        if section.type.name == "REDUCE"
        for index in section.inputs
    ]
    tensors = [(s.name, s.dtype, s.shape) for s in (*exchanged(program), *reduced)]
    options = producer_options(program.producer.options)
    compiled = {name: value for name, value in options.items() if name != "application"}
    return Facts(
        reduces="REDUCE" in types or "OPT" not in types,
        inputs=", ".join(
            f"{s.name} {[*(s.shape or ())]}" for s in (program.symbols[i] for i in ports)
        ),
        model=_digest((program.producer.source_hash, tensors)),
        options=json.dumps(compiled, sort_keys=True),
    )


def exchanged(program: Program) -> list[Symbol]:
    """Return what an executable's `state` may have, in the order of the program."""
    states = states_of(program)
    kinds = (SymbolKind.WEIGHT, SymbolKind.BUFFER, SymbolKind.OPT_STATE)
    return [
        symbol
        for index, symbol in enumerate(program.symbols)
        if symbol.kind in kinds and index in states.all and index not in states.flat
    ]


def _require_reductions(found: Sequence[Facts]) -> None:
    """Raise `NotReducedError` for programs of one process; `found` are by process."""
    alone = [rank for rank, item in enumerate(found) if not item.reduces]
    if alone:
        whose = "" if len(alone) == len(found) else f" of {numbered(alone)}"
        raise NotReducedError(f"the PEF{whose} was compiled for one process")


def _problems(found: Sequence[Facts]) -> Iterator[str]:
    """Yield what keeps programs from training together, listed by process; nothing if they can."""
    first = found[0]
    for rank, item in enumerate(found):
        if item.inputs != first.inputs:
            yield (
                f"process {rank} runs a PEF for other inputs, {item.inputs}, than process 0, "
                f"{first.inputs}: each takes an equal share of a batch; give all processes the "
                f"same PEF"
            )
        elif item.model != first.model:
            yield (
                f"process {rank} runs a PEF of another model than process 0; give all processes "
                f"the same PEF"
            )
        elif item.options != first.options:
            yield (
                f"process {rank} runs a PEF that was compiled with other options than that of "
                f"process 0 ({', '.join(_differing(item.options, first.options))}); give all "
                f"processes the same PEF"
            )


def _differing(some: str, others: str) -> list[str]:
    left, right = json.loads(some), json.loads(others)
    return sorted(name for name in {*left, *right} if left.get(name) != right.get(name))


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()
