"""Fusion rules: a YAML file that names patterns of operators to be mapped as one kernel.

    linear_relu:
      priority: 2                 # the higher one wins where two rules want the same operator
      heuristic: GEMM             # optional; mapping advice for real chips, kept but not used here
      pattern:
        linear:
          op_type: linear         # or a list of types
          child: bias             # or `children`, a list
        bias:
          op_type: add
          optional: true          # the pattern matches with and without it
          child: relu
        relu:
          op_type: relu

This is the form of SambaFlow's files. `op_type` is an ONNX operator in snake case
(`max_pool`), its name in ONNX (`MaxPool`), or one of PyTorch's usual names (`linear`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from pef.wording import did_you_mean
from sambac.errors import CompileError
from sambac.ops.names import known_names, op_types_of
from sambac.rule_files import kind_of, parse_yaml, read_rules

_RULE_KEYS = ("priority", "heuristic", "pattern")
_NODE_KEYS = ("op_type", "child", "children", "optional")
# A pattern with k optional operators stands for 2^k patterns.
_MAX_OPTIONAL = 6


@dataclass(frozen=True, slots=True)
class PatternNode:
    """One operator of a pattern: the types it may have, and which nodes read its outputs."""

    name: str
    op_types: frozenset[str]
    children: tuple[str, ...] = ()
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A named pattern; of two rules that match the same operator the higher priority wins."""

    name: str
    priority: int
    pattern: tuple[PatternNode, ...]
    heuristic: str = ""


def load_rules(path: str | os.PathLike[str] | None) -> tuple[Rule, ...]:
    """Return the rules of the file at `path` and the built-in ones, the highest priority first.

    At equal priority the user's rules come first, then the order in the file counts. A user's
    rule replaces a built-in one of the same name. Raises `CompileError` that lists everything
    wrong with the file.
    """
    text = resources.files(__package__).joinpath("rules.yaml").read_text("utf-8")
    builtin = parse_rules(text, "rules.yaml")
    mine = () if path is None else own_rules(path)
    replaced = {rule.name for rule in mine}
    every = (*mine, *(rule for rule in builtin if rule.name not in replaced))
    return tuple(sorted(every, key=lambda rule: -rule.priority))


def own_rules(path: str | os.PathLike[str]) -> tuple[Rule, ...]:
    """Return the rules of a user's file, in its order. Raises `CompileError` as `load_rules`."""
    return parse_rules(read_rules(Path(path), "fusion rules"), os.fspath(path))


def parse_rules(text: str, origin: str) -> tuple[Rule, ...]:
    """Return the rules in `text`, in its order; `origin` names the file in error messages."""
    table = parse_yaml(text, origin)
    if not isinstance(table, dict):
        raise CompileError(f"{origin}: expected rules by name, found {kind_of(table)}.")
    reader = _Reader()
    rules = [reader.rule(str(name), entry) for name, entry in table.items()]
    if reader.problems:
        raise CompileError(f"{origin}: {'; '.join(reader.problems)}.")
    return tuple(rules)


class _Reader:
    """Turns tables into rules and collects every problem on the way."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def rule(self, name: str, entry: object) -> Rule:
        """Return the rule that `entry` describes; what is wrong with it is in `problems`."""
        where = f"rule {name!r}"
        if not isinstance(entry, dict):
            self._complain(where, f"expected priority and pattern, found {kind_of(entry)}")
            return Rule(name, 0, ())
        self._check_keys(where, entry, _RULE_KEYS)
        priority = entry.get("priority")
        if not isinstance(priority, int) or isinstance(priority, bool):
            self._complain(where, f"'priority' must be a whole number, found {priority!r}")
            priority = 0
        heuristic = entry.get("heuristic", "")
        if not isinstance(heuristic, str):
            self._complain(where, f"'heuristic' must be a name, found {kind_of(heuristic)}")
            heuristic = ""
        pattern = self._pattern(where, entry.get("pattern"))
        return Rule(name, priority, pattern, heuristic)

    def _pattern(self, where: str, entry: object) -> tuple[PatternNode, ...]:
        if not isinstance(entry, dict) or not entry:
            self._complain(where, f"'pattern' must list operators by name, found {kind_of(entry)}")
            return ()
        nodes = tuple(self._node(where, str(name), node) for name, node in entry.items())
        self._check_structure(where, nodes)
        return nodes

    def _node(self, where: str, name: str, entry: object) -> PatternNode:
        where = f"{where}, operator {name!r}"
        if not isinstance(entry, dict):
            self._complain(where, f"expected an op_type, found {kind_of(entry)}")
            return PatternNode(name, frozenset())
        self._check_keys(where, entry, _NODE_KEYS)
        optional = entry.get("optional", False)
        if not isinstance(optional, bool):
            self._complain(where, f"'optional' must be true or false, found {optional!r}")
        return PatternNode(
            name=name,
            op_types=self._op_types(where, entry.get("op_type")),
            children=self._children(where, entry),
            optional=optional is True,
        )

    def _op_types(self, where: str, entry: object) -> frozenset[str]:
        names = entry if isinstance(entry, list) else [entry]
        types: set[str] = set()
        for name in names:
            found = op_types_of(name) if isinstance(name, str) else frozenset()
            if not found:
                hint = did_you_mean(str(name), known_names()) if name is not None else ""
                self._complain(where, f"'op_type' {name!r} is no known operator{hint}")
            types |= found
        return frozenset(types)

    def _children(self, where: str, entry: Mapping[object, object]) -> tuple[str, ...]:
        """Read `child` or `children`; a plain text lists names between blanks."""
        if "child" in entry and "children" in entry:
            self._complain(where, "has both 'child' and 'children', expected one of them")
        listed = entry.get("children", entry.get("child", ""))
        names = listed.split() if isinstance(listed, str) else listed
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            self._complain(where, f"'children' must be a list of names, found {kind_of(listed)}")
            return ()
        for name in sorted({name for name in names if names.count(name) > 1}):
            self._complain(where, f"lists {name!r} twice, expected once for all that it reads")
        return tuple(dict.fromkeys(names))

    def _check_keys(
        self, where: str, entry: Mapping[object, object], known: tuple[str, ...]
    ) -> None:
        for key in entry:
            if key not in known:
                self._complain(where, f"unknown key {key!r}{did_you_mean(str(key), known)}")

    def _check_structure(self, where: str, nodes: tuple[PatternNode, ...]) -> None:
        names = tuple(node.name for node in nodes)
        strangers = [(n.name, c) for n in nodes for c in n.children if c not in names]
        for name, child in strangers:
            hint = did_you_mean(child, names)
            self._complain(where, f"{name!r} has the child {child!r}, which is not there{hint}")
        if len(nodes) < 2:
            self._complain(where, "the pattern has one operator, expected at least two")
        if sum(node.optional for node in nodes) > _MAX_OPTIONAL:
            self._complain(where, f"more than {_MAX_OPTIONAL} operators are optional")
        children = {node.name: node.children for node in nodes}
        if not _is_acyclic(children):
            self._complain(where, "the children form a cycle")
        if not strangers and not _is_connected(children):
            self._complain(where, "the pattern falls into parts without a connection")

    def _complain(self, where: str, what: str) -> None:
        self.problems.append(f"{where}: {what}")


def _is_acyclic(children: Mapping[str, tuple[str, ...]]) -> bool:
    """Return whether taking away nodes without parents, again and again, leaves nothing."""
    left = set(children)
    while True:
        targets = {child for name in left for child in children[name]}
        if left <= targets:
            return not left
        left &= targets


def _is_connected(children: Mapping[str, tuple[str, ...]]) -> bool:
    links: dict[str, set[str]] = {name: set() for name in children}
    for name, listed in children.items():
        for child in listed:
            if child in links:
                links[name].add(child)
                links[child].add(name)
    seen: set[str] = set()
    pending = list(children)[:1]
    while pending:
        name = pending.pop()
        if name not in seen:
            seen.add(name)
            pending += links[name]
    return seen == set(children)
