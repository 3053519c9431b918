"""What an application stores in a program, and what of samba's a program says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from pef.program import Program

API = "samba"
"""Whose names the aliases in a program are."""

APPLICATION = "application"
"""Where the producer's options hold what the application stored."""


def application_of(program: Program) -> dict[str, object]:
    """Return what the application stored in `program`."""
    found = json.loads(program.producer.options or "{}").get(APPLICATION)
    return found if isinstance(found, dict) else {}


def with_application(program: Program, facts: Mapping[str, object]) -> Program:
    """Return `program` that stores `facts` of the application."""
    options = {**json.loads(program.producer.options), APPLICATION: facts}
    text = json.dumps(options, sort_keys=True)
    return replace(program, producer=replace(program.producer, options=text))


def unused_inputs(program: Program) -> frozenset[str]:
    """Return the inputs of models that their program does not read."""
    found = application_of(program).get("unused_inputs")
    return frozenset(map(str, found)) if isinstance(found, list) else frozenset()


def plain(value: object) -> object:
    """Return `value` as JSON can hold it: lists for other sequences and sets, text for the rest."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, set | frozenset):
        return sorted(str(part) for part in value)
    if isinstance(value, Iterable):
        return [plain(part) for part in value]
    return _text(value)


def stored(metadata: Mapping[str, object]) -> dict[str, object]:
    """Return metadata as JSON holds it."""
    return {str(name): plain(value) for name, value in metadata.items()}


def _text(value: object) -> str:
    """Return a text for `value` that is the same in every process."""
    text = str(value)
    return type(value).__qualname__ if " at 0x" in text else text
