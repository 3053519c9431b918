"""The planners rest on networkx: what ARCHITECTURE.md says of it is what the code does."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import sambac

_ROOT = Path(__file__).parents[2]
_COMPILER = Path(sambac.__file__).parent
# What makes a graph or is asked of one without an algorithm.
_NO_ALGORITHMS = frozenset({"DiGraph", "Graph", "freeze"})
# Which functions pass graphs on, by module: the way from operators to addresses.
_GRAPHS = {
    "fusion": ["Contraction.__init__"],
    "liveness": ["symbol_graph", "lifetimes_of", "moved_by_calls", "_touch"],
    "region_times": ["traffic_graph", "RegionTimes.of"],
    "sections": ["traffic_of"],
    "stages": ["_numbers_behind"],
    "view": [
        "DataflowView.graph",
        "DataflowView.placed",
        "DataflowView.copies",
        "dataflow",
        "contracted",
        "crossings",
        "given",
        "first_reaching",
        "depth_first",
    ],
}
_GRAPH_TYPES = re.compile(r"\b(nx\.(Di)?Graph|SymbolGraph|TrafficGraph)\b")


def _algorithms(path: Path) -> set[str]:
    """Return the functions of networkx that a module calls."""
    return {
        node.attr
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "nx"
    } - _NO_ALGORITHMS


def _functions(path: Path) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    yield f"{node.name}.{inner.name}", inner


def _passes_a_graph(function: ast.FunctionDef) -> bool:
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    noted = [argument.annotation for argument in arguments] + [function.returns]
    return any(_GRAPH_TYPES.search(ast.unparse(note)) for note in noted if note is not None)


def test_the_table_of_algorithms_is_what_the_code_calls() -> None:
    text = (_ROOT / "ARCHITECTURE.md").read_text("utf-8")
    told: dict[str, set[str]] = {}
    for module, names in re.findall(r"^\| `([\w/]+\.py)` \| (.*?) \|", text, re.MULTILINE):
        told.setdefault(module, set()).update(re.findall(r"`(\w+)`", names))
    used = {
        path.relative_to(_COMPILER).as_posix(): found
        for path in sorted(_COMPILER.rglob("*.py"))
        if "import networkx as nx" in path.read_text("utf-8") and (found := _algorithms(path))
    }
    assert told == used


def test_planners_pass_graphs_on() -> None:
    found = {
        path.stem: names
        for path in sorted((_COMPILER / "planning").glob("*.py"))
        if (names := [name for name, node in _functions(path) if _passes_a_graph(node)])
    }
    assert found == _GRAPHS
