"""Files of the product appear whole or not at all: `pef.files` writes them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PACKAGES = (
    "schema/pef",
    "compiler/sambac",
    "runtime/sambarun",
    "host/sambahost",
    "cli/samba_cli",
    "sambaflow",
    "pybuda",
)
_WRITER = "schema/pef/files.py"

# What writes where it is told to, and else to a file that opens as one does for reading.
_OPENERS = frozenset({"open", "ZipFile", "fdopen", "FileIO", "GzipFile"})
_WRITERS = frozenset(
    {"save", "savez", "savez_compressed", "savetxt", "save_model",
     "rename", "copyfile", "copy2", "move"}
)  # fmt: skip
_MODULES = frozenset({"np", "numpy", "torch", "onnx", "ir", "shutil", "os"})

# Functions that write otherwise, and why: to a file that `replacing` has made for them, or to none.
_ALLOWED = {
    ("schema/pef/writer.py", "_write_to"): "the new file that takes the place of the target",
    ("cli/samba_cli/results.py", "_save_npz"): "the new file that takes the place of the target",
    ("cli/samba_cli/results.py", "_save_npy"): "the new file that takes the place of the target",
    ("cli/samba_cli/results.py", "_save_safetensors"): "the new file, as above",
    ("host/sambahost/program_bundle.py", "write_bundle"): "an entry of the new file, as above",
    ("compiler/sambac/quantization/measuring.py", "_written"): "a folder that goes after the run",
    ("cli/samba_cli/train_progress.py", "_open"): "rows are appended to a log that is whole",
    ("cli/samba_cli/shell.py", "_silence"): "a device that forgets all",
    ("cli/samba_cli/shell.py", "_abandon_output"): "a device that forgets all",
}


def _writes(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the function around, and the line, of what writes to no file of `replacing`."""
    tree = ast.parse(path.read_text("utf-8"))
    around: list[tuple[ast.AST, str, frozenset[str]]] = [(tree, "", frozenset())]
    while around:
        node, function, new = around.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function = node.name
        if isinstance(node, ast.With):
            new |= {name for item in node.items for name in _replaced(item)}
        if isinstance(node, ast.Call) and _is_write(node):
            names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
            if not names & new:
                yield function, node.lineno
        around += [(child, function, new) for child in ast.iter_child_nodes(node)]


def _replaced(item: ast.withitem) -> Iterator[str]:
    """Yield the name of the new file in `with replacing(...) as name`."""
    call, target = item.context_expr, item.optional_vars
    if isinstance(call, ast.Call) and isinstance(target, ast.Name) and _called(call) == "replacing":
        yield target.id


def _called(call: ast.Call) -> str:
    function = call.func
    return getattr(function, "attr", None) or getattr(function, "id", "")


def _is_write(call: ast.Call) -> bool:
    name, owner = _called(call), getattr(call.func, "value", None)
    if name == "write_text":
        return isinstance(call.func, ast.Attribute)  # not that of `pef.files`
    if name in _OPENERS:
        words = [*call.args, *(word.value for word in call.keywords)]
        texts = [word.value for word in words if isinstance(word, ast.Constant)]
        modes = [text for text in texts if isinstance(text, str) and set(text) <= set("rwaxbt+")]
        flags = {inner.attr for word in words for inner in ast.walk(word) if _is_flag(inner)}
        return any(set(mode) & set("wax+") for mode in modes) or bool(flags)
    if name in ("write_bytes", "tofile", "save_file"):
        return True
    return name in _WRITERS and isinstance(owner, ast.Name) and owner.id in _MODULES


def _is_flag(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("O_WRONLY", "O_RDWR", "O_CREAT")


@pytest.mark.parametrize("package", _PACKAGES)
def test_all_files_are_written_by_one_function(package: str) -> None:
    found = {
        f"{path.relative_to(_ROOT)}:{line} in {function}"
        for path in sorted((_ROOT / package).rglob("*.py"))
        if str(path.relative_to(_ROOT)) != _WRITER
        for function, line in _writes(path)
        if (str(path.relative_to(_ROOT)), function) not in _ALLOWED
    }
    assert not found, "use pef.files.replacing or write_text"


def test_every_exception_is_one() -> None:
    for name, function in _ALLOWED:
        assert function in {where for where, _ in _writes(_ROOT / name)}, (name, function)


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("Path('x').write_text('')", True),
        ("path.write_bytes(b'')", True),
        ("open(path, 'w')", True),
        ("open(path, mode='r+b')", True),
        ("path.open('ab')", True),
        ("os.open(path, os.O_WRONLY | os.O_CREAT)", True),
        ("np.savez(path, x=x)", True),
        ("torch.save(x, path)", True),
        ("ir.save(model, path)", True),
        ("save_file(x, path)", True),
        ("shutil.copyfile(a, b)", True),
        ("zipfile.ZipFile(path, 'w')", True),
        ("with replacing(path) as new: new.write_bytes(b'')", False),
        ("with replacing(path) as new, new.open('wb') as file: file.write(b'')", False),
        ("with replacing(path) as new: other.write_bytes(b'')", True),
        ("write_text(path, '')", False),
        ("open(path)", False),
        ("path.open('rb')", False),
        ("program.save(path)", False),
    ],
)
def test_what_counts_as_writing(line: str, wrong: bool, tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    path.write_text(line, "utf-8")
    assert bool(list(_writes(path))) == wrong
