"""What a session takes and gives, and whether the program says so: names, and types of tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import onnxruntime

import pef
from pef import dtypes

Ports = Sequence[tuple[str, pef.Symbol]]


class Compiled(NamedTuple):
    """A unit's session. `inputs` and `outputs` are its names of the unit's symbols, in order."""

    session: onnxruntime.InferenceSession
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def provider(self) -> str:
        """The execution provider that runs it, by onnxruntime's name."""
        return str(self.session.get_providers()[0])


def port_problems(
    session: onnxruntime.InferenceSession, inputs: Ports, outputs: Ports
) -> list[str]:
    """Return how `session` differs from the ports that it is to have, a phrase each.

    Ports are names in the session with the symbols that are bound to them. What is no tensor is
    left to onnxruntime, which looks at the values themselves.
    """
    sides = (("input", inputs, session.get_inputs()), ("output", outputs, session.get_outputs()))
    problems: list[str] = []
    for what, ports, found in sides:
        types = {port.name: port.type for port in found}
        problems += _differences(what, ports, types)
        named = {name for name, _ in ports}
        if what == "input":
            problems += [f"wants an input '{name}'" for name in types if name not in named]
    return problems


def _differences(what: str, ports: Ports, types: dict[str, str]) -> Iterator[str]:
    for name, symbol in ports:
        if name not in types:
            yield f"has no {what} '{name}'"
            continue
        wanted, found = dtypes.parse(symbol.type), dtypes.parse(types[name])
        if wanted != found:
            yield f"has the {what} '{name}' of {types[name]}, '{symbol.name}' is a {symbol.type}"
