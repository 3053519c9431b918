"""Exported programs in files: data alone is loaded, never code.

torch.export.load unpickles example inputs, custom objects and tensors of subclasses, evaluates
expressions of sizes as Python, imports modules that structures of arguments name, calls any
function of Python that an operator names, writes names of values and arguments into source that it
runs, and loads compiled libraries. So each record of an archive is looked at first, by the reader
that loads it, and what could run code is refused.
"""

from __future__ import annotations

import ast
import io
import json
import os
import pickle
import re
from collections.abc import Callable, Iterator, Mapping

import torch
from torch._export.serde import serialize
from torch.export import ExportedProgram
from torch.export.pt2_archive import PT2ArchiveReader
from torch.export.pt2_archive import constants as layout
from torch.export.pt2_archive._package import load_pt2
from torch.utils import _pytree as pytree

from pef.wording import listed
from sambac.errors import CompileError
from sambac.frontend.torch.patching import replaced

from .structures import read_structure

_MODEL = "model"
"""What torch.export.save calls the program in an archive."""

_PROGRAM = layout.MODELS_FILENAME_FORMAT.format(_MODEL)
_CONFIGS = (
    (layout.WEIGHTS_DIR, layout.WEIGHTS_CONFIG_FILENAME_FORMAT.format(_MODEL)),
    (layout.CONSTANTS_DIR, layout.CONSTANTS_CONFIG_FILENAME_FORMAT.format(_MODEL)),
)
"""Where tables say what tensors there are, and the folder of those."""

_INPUTS = layout.SAMPLE_INPUTS_FILENAME_FORMAT.format(_MODEL)
_PICKLES = (_INPUTS, f"{layout.WEIGHTS_DIR}{_MODEL}.pt", f"{layout.CONSTANTS_DIR}{_MODEL}.pt")
"""Example inputs, and where older archives have their tensors."""

_FOLDERS = (layout.WEIGHTS_DIR, layout.CONSTANTS_DIR, layout.EXTRA_DIR, ".data/")
_RECORDS = frozenset({"archive_format", "archive_version", "byteorder", _PROGRAM, *_PICKLES})
_OBJECTS = (layout.CUSTOM_OBJ_FILENAME_PREFIX, layout.OPAQUE_OBJ_FILENAME_PREFIX)

_OPERATOR = re.compile(
    r"torch\.ops\.(aten|prims|quantized_decomposed|torchvision)\.\w+\.\w+"
    r"|torch\.ops\.higher_order\."
    r"(cond|invoke_subgraph|map_impl|scan|while_loop|wrap_with_autocast|wrap_with_set_grad_enabled)"
    r"|torch\._functorch\.predispatch\._\w+"
)
_ON_SIZES = frozenset(f"{item.__module__}.{item.__name__}" for item in serialize._SYM_OPS)
_FUNCTIONS = _ON_SIZES | {"_operator.getitem", "torch.sym_sum"}
_ON_NUMBERS = frozenset(
    {
        *("Abs", "Add", "And", "CeilDiv", "CeilToInt", "CleanDiv", "Equality", "ExprCondPair"),
        *("Float", "FloatPow", "FloatTrueDiv", "FloorDiv", "FloorToInt", "GreaterThan"),
        *("Identity", "IntTrueDiv", "Integer", "IsNonOverlappingAndDenseIndicator", "LShift"),
        *("LessThan", "Max", "Min", "Mod", "ModularIndexing", "Mul", "Not", "Or", "Piecewise"),
        *("Pow", "PowByNatural", "PythonMod", "RShift", "Rational", "RoundDecimal", "RoundToInt"),
        *("StrictGreaterThan", "StrictLessThan", "Symbol", "ToFloat", "TruncToFloat"),
        *("TruncToInt", "Unequality", "Where"),
    }
)
"""What the expressions of sizes are made of, as torch.export.save writes them."""

_POWERS = frozenset({"Pow", "PowByNatural", "FloatPow", "LShift"})
_LARGEST_POWER = 64
"""Sizes have no higher powers; what numbers alone make of one may take for ever to compute."""

_NAMES = frozenset({"true", "false", "oo", "int_oo"})
_WORD = re.compile(r"[\w.+-]+")
# Infinite numbers are texts there, too.
_NAME = re.compile(r"[\w.]*|-Infinity")
# Quotes would end the text that PyTorch writes such a name into.
_PATH = re.compile(r"[^\"'\\\x00-\x1f\x7f-\x9f\u2028\u2029]*")
_PATHS = frozenset(
    {"buffer_name", "custom_obj_name", "fqn", "parameter_name", "tensor_constant_name"}
)
"""Keys of names of parameters and modules, which may have been given by keys of a `ModuleDict`."""

_TEXTS = frozenset({"as_string", "as_strings", "guards_code", "torch_version"})
"""Keys of what is no name: operands, what is deleted once it is loaded, and words."""

_FACTORIES = frozenset({"bool", "dict", "float", "int", "list", "set", "str", "tuple"})
_CURE = (
    "if you trust it, load it in a file of your own and compile that: FILE.py:NAME, a function "
    "that returns torch.export.load(...)"
)


def program_in(path: str) -> ExportedProgram:
    """Return the program in an archive, of which nothing is run.

    Raises `CompileError` where it holds more than data. PyTorch raises many kinds of errors for
    archives that are damaged.
    """
    with PT2ArchiveReader(path) as archive:
        problems = [*_problems(archive)]
    if problems:
        raise CompileError(
            f"'{path}' holds more than data: {listed(list(dict.fromkeys(problems)))}; {_CURE}"
        )
    with replaced(serialize, "treespec_loads", read_structure):
        program: ExportedProgram = load_pt2(path).exported_programs[_MODEL]
    program._guards_code = []  # Python that `ExportedProgram.module` would run
    return program


def _problems(archive: PT2ArchiveReader) -> Iterator[str]:
    """Yield what in the records of an archive could run code."""
    names = set(archive.get_file_names())
    for name in sorted(names):
        if name not in _RECORDS and not name.startswith(_FOLDERS):
            yield f"the record {name} is nothing that torch.export.save writes"
    for name in _PICKLES:
        if name == _INPUTS or name in names:
            yield from _pickled(archive, name)
    for folder, config in _CONFIGS:
        if config in names:
            yield from _tensors(archive, folder, json.loads(archive.read_string(config)))
    yield from _programs(json.loads(archive.read_bytes(_PROGRAM)))


def _pickled(archive: PT2ArchiveReader, name: str) -> Iterator[str]:
    content = archive.read_bytes(name)
    try:
        if content:
            torch.load(io.BytesIO(content), weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, ValueError, TypeError, KeyError, EOFError):
        yield f"the record {name} is no plain tensors (torch.load with weights_only=True)"


def _tensors(archive: PT2ArchiveReader, folder: str, table: object) -> Iterator[str]:
    """Yield what is wrong with a table of tensors."""
    for entry in _dicts(table):
        name = entry.get("path_name")
        if isinstance(name, str) and name.startswith(_OBJECTS):
            yield f"the record {folder}{name} is an object of a class"
        elif isinstance(name, str) and entry.get("use_pickle", False):
            yield from _pickled(archive, os.path.join(folder, name))


def _programs(tree: object) -> Iterator[str]:
    """Yield what in the description of a program could run code."""
    for entry in _dicts(tree):
        for key, value in entry.items():
            check = _CHECKS.get(key)
            if check is not None and not check(value):
                yield f"{key} {str(value)[:60]!r}"
    for key, text in _names(tree):
        if (_PATH if key in _PATHS else _NAME).fullmatch(text) is None:
            yield f"the name {text[:60]!r}"


def _names(tree: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield all texts in a description that are not checked by their key, and those keys."""
    todo = [(key, tree)]
    while todo:
        key, item = todo.pop()
        if isinstance(item, dict):
            todo += [("", name) for name in item]
            todo += [(k, v) for k, v in item.items() if k not in _TEXTS and k not in _CHECKS]
        elif isinstance(item, list):
            todo += [(key, part) for part in item]
        elif isinstance(item, str):
            yield key, item


def _dicts(tree: object) -> Iterator[dict[str, object]]:
    """Yield all dicts of what JSON describes."""
    todo = [tree]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            yield item
            todo += item.values()
        elif isinstance(item, list):
            todo += item


def _is_operator(text: object) -> bool:
    """Tell whether `text` names an operator of PyTorch that computes."""
    if text in _FUNCTIONS:
        return True
    if not isinstance(text, str) or not _OPERATOR.fullmatch(text):
        return False
    target: object = torch
    for name in text.split(".")[1:]:
        target = getattr(target, name, None)
    if not isinstance(target, torch._ops.OpOverload):
        return not text.startswith("torch.ops") or isinstance(
            target, torch._ops.HigherOrderOperator | None
        )
    arguments = {argument.name for argument in target._schema.arguments}
    # What no dispatcher knows belongs to TorchScript, which has operators that write files.
    return torch._C._dispatch_has_kernel(target._name) and "filename" not in arguments


def _is_expression(text: object) -> bool:
    """Tell whether `text` is an expression of sizes: calls, numbers, and names of symbols."""
    try:
        return _is_plain(ast.parse(str(text), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _is_plain(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (bool, int, float))
    if isinstance(node, ast.Name):
        return node.id in _NAMES
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return isinstance(node, ast.UnaryOp) and _is_plain(node.operand)
    function = node.func.id
    if function in _POWERS and not _is_small_power(node):
        return False
    named = function in ("Symbol", "Float")
    arguments = (*node.args, *(item.value for item in node.keywords))
    return function in _ON_NUMBERS and all(
        (named and _is_word(item)) or _is_plain(item) for item in arguments
    )


def _is_small_power(node: ast.Call) -> bool:
    """Tell whether what is below a power has no powers, and its exponents only small numbers."""
    operands = [*node.args, *(item.value for item in node.keywords)]
    parts = [part for side in operands for part in ast.walk(side)]
    exponents = [part for side in operands[1:] for part in ast.walk(side)]
    return all(not isinstance(part, ast.Name) or part.id not in _POWERS for part in parts) and all(
        not isinstance(part, ast.Name | ast.Constant) or _is_small(part) for part in exponents
    )


def _is_small(part: ast.Name | ast.Constant) -> bool:
    if isinstance(part, ast.Name):
        return part.id != "Symbol"
    return not isinstance(part.value, int | float) or abs(part.value) <= _LARGEST_POWER


def _is_word(node: ast.expr) -> bool:
    """Tell whether `node` is the name of a symbol or the digits of a number."""
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and _WORD.fullmatch(node.value) is not None
    )


def _is_structure(text: object) -> bool:
    """Tell whether `text` describes collections without naming Python's own things.

    What registered types write of themselves is JSON in strings of that JSON.
    """
    try:
        tree: object = json.loads(str(text))
    except ValueError:
        return False
    return all(map(_is_context, _dicts(tree)))


def _is_call(text: object) -> bool:
    """Tell whether `text` describes arguments whose keywords are names."""
    if not _is_structure(text):
        return False
    keywords = (part.context for part in read_structure(str(text)).children())
    names = (item for item in pytree.tree_leaves(list(keywords)) if isinstance(item, str))
    return all(map(_NAME.fullmatch, names))


def _is_context(entry: Mapping[str, object]) -> bool:
    if "__enum__" in entry:
        return False
    if "default_factory_module" in entry:
        factory = entry.get("default_factory_name")
        return entry["default_factory_module"] == "builtins" and factory in _FACTORIES
    texts = [value for value in entry.values() if isinstance(value, str) and value[:1] in "[{"]
    return all(map(_is_structure, texts))


def _is_note(value: object) -> bool:
    """Tell whether what is noted of an operator is texts by name, which nothing runs."""
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


_CHECKS: Mapping[str, Callable[[object], bool]] = {
    "target": _is_operator,
    "as_operator": _is_operator,
    "expr_str": _is_expression,
    "in_spec": _is_call,
    "metadata": _is_note,
    "out_spec": _is_structure,
}
"""What keys in the description of a program may hold, wherever they stand."""
