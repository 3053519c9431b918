"""Names are labels: what a program knows of a tensor, a graph or an operator stands in a field.

Looked for is code that takes a name apart: methods of texts by the marks that names are joined
with (`w__grad`, `fit/train`, `adam.lr`), and methods of texts on anything's `name`, or `type`, and
on sentences for users.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pef.hyperparameters import KINDS

_ROOT = Path(__file__).parents[2]
_PRODUCT = ("compiler", "runtime", "schema", "host", "cli", "sambaflow", "pybuda")
_APART = frozenset(
    {"split", "rsplit", "partition", "rpartition", "startswith", "endswith", "removeprefix"}
    | {"removesuffix", "find", "rfind", "index", "rindex"}
)
_MARKS = ("__", "/")
_OPTIONS = frozenset(f".{option}" for option in KINDS)
_TEXTS = ("warning", "message")
"""What variables are called that hold a sentence for users."""
_MAY = {
    "schema/pef/graphs.py": "the one place where a name that somebody spelled is taken apart",
    "compiler/sambac/planning/check_sections.py": "looks for the warning that a user must get",
    "compiler/sambac/reconstruct/verify.py": "looks for the warning that a user must get",
    "schema/pef/older.py": "states for older files what their names said",
    "compiler/sambac/graph/origins.py": "names of nodes are where exporters tell of modules",
    "compiler/sambac/arch/loading.py": "names of files",
    "schema/pef/files.py": "names of files",
    "schema/pef/reached_code.py": "paths of files, and dunder names of Python's",
    "schema/pef/objects.py": "dunder names of Python's",
    "schema/pef/object_forms.py": "dunder names of Python's",
    "schema/pef/object_parts.py": "dunder names of Python's",
    "sambaflow/samba/lazy/recording.py": "methods of torch that work in place",
    "sambaflow/samba/tensors/symbolic.py": "methods of torch that work in place",
    "runtime/sambarun/device/fitted.py": "looks for a mark that no symbol ends with",
    "compiler/sambac/explain/written.py": "offers names that begin with one that a user spelled",
    "compiler/sambac/passes/legalize/infer_shapes.py": "the names of an operator's attributes",
    "compiler/sambac/passes/device_numbers/number_ops.py": "makes one label of another",
    "pybuda/formats.py": "members of an enumeration",
    "compiler/sambac/frontend/torch/files/archives.py": "dunder names of Python's",
    "runtime/sambarun/device/state.py": "where no file says it, the word of a parameter's author "
    "says what it starts as",
}
"""Files in which something of the kind may be found, and why."""


def _taken_apart(tree: ast.Module) -> Iterator[int]:
    """Yield the lines in which a name is taken apart."""
    texts = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            if _has_mark(node.left, texts) and not isinstance(node.left, ast.JoinedStr):
                yield node.lineno
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _APART
            and node.args
            and (_is_name(node.func.value) or any(_has_mark(a, texts) for a in node.args))
        ):
            yield node.lineno


def _has_mark(node: ast.expr, texts: dict[str, ast.expr]) -> bool:
    """Tell whether a text, or one of a tuple of texts, has one of the marks, or begins so."""
    if isinstance(node, ast.Name) and node.id in texts:
        node = texts[node.id]
    if isinstance(node, ast.Constant):
        text = node.value
        return isinstance(text, str) and (text.startswith(_MARKS) or text in _OPTIONS)
    if isinstance(node, ast.JoinedStr):
        return any(_has_mark(part, {}) for part in node.values)
    return isinstance(node, ast.Tuple) and any(_has_mark(item, texts) for item in node.elts)


def _is_name(node: ast.expr) -> bool:
    """Tell whether an expression is something's name: `x.name`, `str(x.name)`, `x.name.lower()`."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            return _is_name(node.func.value)
        return isinstance(node.func, ast.Name) and node.func.id == "str" and _is_name(node.args[0])
    if isinstance(node, ast.Name):
        return node.id in _TEXTS
    return isinstance(node, ast.Attribute) and node.attr in ("name", "type")


@cache
def _found() -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for folder in _PRODUCT:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            lines = sorted(_taken_apart(ast.parse(path.read_text("utf-8"))))
            if lines and "generated" not in path.parts:
                found[str(path.relative_to(_ROOT))] = lines
    return found


def test_no_code_takes_names_apart() -> None:
    found = _found()
    assert not {file: lines for file, lines in found.items() if file not in _MAY}


def test_nothing_may_that_does_not() -> None:
    assert _MAY.keys() <= _found().keys()


def test_what_is_looked_for_is_found() -> None:
    """All the ways in which the tree did it once, and some beside them."""
    lines = (
        'owners = {name.rpartition("__")[0] for name in names}',
        'MARK = "__"\nbase, _, what = name.rpartition(MARK)',
        'GRADIENT = "__grad"\nbase = name.removesuffix(GRADIENT)',
        'placed = [name for name in names if name.startswith(f"{known}__")]',
        'trains = name.endswith(("/train", "/eval"))',
        'last = symbol.name.replace("__", ".").split(".")[-1]',
        'state = "__" in name',
        'trains = str(graph.name).endswith("train")',
        'RATE = ".lr"\nowners = [name.removesuffix(RATE) for name in names]',
        'may_lack = symbol.type.startswith("optional(")',
        'told = {warning.partition(" is larger")[0] for warning in plan.warnings}',
    )
    assert not [text for text in lines if not list(_taken_apart(ast.parse(text)))]
