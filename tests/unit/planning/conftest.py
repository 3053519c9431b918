"""Views written down as text, for tests of planners."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from pef.program import SectionType
from sambac.planning.view import DataflowView, OpFacts, ValueFacts, ValueRole

_LINE = re.compile(r"(?P<name>\w+)(?P<clone>\*?): (?P<type>[\w.]+)\((?P<ins>.*)\) -> (?P<outs>.*)")


@pytest.fixture(scope="session")
def make_view() -> Callable[..., DataflowView]:
    """Return a function from lines such as `conv: Conv(x, w) -> a` to a view.

    A star behind a name marks a cloned operator. Values that no operator makes are weights when
    they begin with `w`, otherwise inputs. Every value has 64 bytes unless `sizes` says otherwise;
    an operator has 1000 flops unless it is in `flops`. The last output is the model's unless
    `outputs` lists others.
    """
    return _make_view


def _make_view(
    text: str,
    *,
    outputs: str | None = None,
    sizes: dict[str, int | None] | None = None,
    flops: dict[str, int] | None = None,
    modules: dict[str, str] | None = None,
    types: dict[str, SectionType] | None = None,
) -> DataflowView:
    ops: dict[str, OpFacts] = {}
    for line in filter(None, (line.strip() for line in text.splitlines())):
        match = _LINE.fullmatch(line)
        assert match, line
        name = match["name"]
        domain, _, op_type = match["type"].rpartition(".")
        ops[name] = OpFacts(
            name,
            op_type,
            domain,
            _names(match["ins"]),
            _names(match["outs"]),
            flops=(flops or {}).get(name, 1000),
            cloned=match["clone"] == "*",
            section_type=(types or {}).get(name, SectionType.FWD),
            module=(modules or {}).get(name, ""),
        )
    made = {value for op in ops.values() for value in op.outputs}
    values: dict[str, ValueFacts] = {}
    for op in ops.values():
        for value in (*op.inputs, *op.outputs):
            size = (sizes or {}).get(value, 64)
            values[value] = ValueFacts(value, _role(value, made), 1, None, "tensor(float)", size)
    last = list(ops.values())[-1].outputs if ops else ()
    returned = tuple(outputs.split()) if outputs is not None else last
    inputs = tuple(name for name, facts in values.items() if facts.role is ValueRole.INPUT)
    return DataflowView(ops, values, inputs, returned)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.replace(",", " ").split())


def _role(value: str, made: set[str]) -> ValueRole:
    if value in made:
        return ValueRole.ACTIVATION
    return ValueRole.WEIGHT if value.startswith("w") else ValueRole.INPUT
