"""Which optimizer updates which parameter, and what each optimizer is called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import onnx_ir as ir

from pef.wording import did_you_mean, listed
from sambac.errors import CompileError
from sambac.optimizers import Optimizer


@dataclass(frozen=True)
class ParameterGroup:
    """An optimizer under its name in the program, and the parameters that it updates."""

    name: str
    optimizer: Optimizer
    parameters: tuple[str, ...]


def assign(
    optimizers: Sequence[Optimizer], parameters: Mapping[str, ir.Value]
) -> tuple[ParameterGroup, ...]:
    """Return a group for each of `optimizers`, over `parameters`, values by name.

    Of several optimizers that match a parameter the one with the narrowest pattern updates it: a
    plain name is narrower than a pattern, any pattern narrower than `*`. Parameters that nobody
    matches are in no group. Raises `CompileError` with everything that is wrong.
    """
    names = optimizer_names(optimizers)
    problems = [
        f"Two optimizers are called '{name}'; give each its own name."
        for name, count in Counter(names).items()
        if count > 1
    ]
    problems += [
        f"The parameter '{name}' is of type {value.dtype.name.lower()}, which cannot be trained; "
        "freeze it."
        for name, value in parameters.items()
        if value.dtype is not None and not value.dtype.is_floating_point()
    ]
    reaches = []
    for name, optimizer in zip(names, optimizers, strict=True):
        reach, idle = _reach(optimizer, parameters)
        reaches.append(reach)
        problems += [
            f"'{pattern}' of the optimizer {name} matches no trained parameter"
            f"{did_you_mean(pattern, parameters)}."
            for pattern in idle
            if not optimizer.lenient
        ]
    chosen: list[list[str]] = [[] for _ in optimizers]
    for parameter in parameters:
        found = _narrowest(reaches, parameter)
        if len(found) > 1:
            rivals = listed([names[index] for index in found], separator=" and ")
            problems.append(
                f"The parameter '{parameter}' is matched by {rivals} alike; "
                "give one of them a narrower pattern."
            )
        if found:
            chosen[found[0]].append(parameter)
    if problems:
        raise CompileError(listed(problems, separator=" "))
    return tuple(map(ParameterGroup, names, optimizers, map(tuple, chosen)))


def optimizer_names(optimizers: Sequence[Optimizer]) -> tuple[str, ...]:
    """Return their names: those given, else the kind, as `adamw.0`, `adamw.1` if several share it.

    The dot lets `adamw.lr` mean the rate of all of them at run time.
    """
    shared = Counter(item.kind for item in optimizers if not item.name)
    numbers: Counter[str] = Counter()
    names = []
    for item in optimizers:
        name = item.name or item.kind
        if not item.name and shared[item.kind] > 1:
            name = f"{item.kind}.{numbers[item.kind]}"
            numbers[item.kind] += 1
        names.append(name)
    return tuple(names)


def _reach(
    optimizer: Optimizer, parameters: Mapping[str, ir.Value]
) -> tuple[dict[str, int], list[str]]:
    """Return how narrowly `optimizer` matches parameters, and its patterns that match none.

    The narrowness is 0 by `*`, 1 by another pattern, 2 by name.
    """
    reach: dict[str, int] = {}
    idle = []
    for pattern in optimizer.params:
        matched = (
            [pattern]
            if pattern in parameters
            else [name for name in parameters if fnmatchcase(name, pattern)]
        )
        narrowness = 2 if pattern in parameters else int(pattern != "*")
        reach.update({name: max(narrowness, reach.get(name, 0)) for name in matched})
        if not matched:
            idle.append(pattern)
    return reach, idle


def _narrowest(reaches: Sequence[Mapping[str, int]], parameter: str) -> list[int]:
    """Return the positions of the optimizers that match `parameter` most narrowly."""
    best = max((reach.get(parameter, -1) for reach in reaches), default=-1)
    return [index for index, reach in enumerate(reaches) if reach.get(parameter) == best >= 0]
