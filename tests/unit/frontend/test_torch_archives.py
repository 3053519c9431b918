"""Exported programs in files: what would run code when PyTorch loads it is refused instead."""

from __future__ import annotations

import io
import json
import math
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch_runs import run

import sambac
from sambac.errors import CompileError
from sambac.frontend import load
from sambac.frontend.torch.files.structures import read_structure
from sambac.frontend.torch.programs.names import result_names
from sambac.options import CompileOptions

_PLAIN = CompileOptions()
Records = dict[str, bytes]
_MODEL = "models/model.json"
_WEIGHTS = "data/weights/model_weights_config.json"
_CONSTANTS = "data/constants/model_constants_config.json"


class _Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.scale = torch.full((2,), 2.0)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        with torch.no_grad():
            wide = torch.cat([x, x + 1]) * 2
        return {"y": self.layer(wide).reshape(2 * x.shape[0], 2) * self.scale}


class _Touches:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """Return what is in the archive of a program with open sizes."""
    path = tmp_path_factory.mktemp("archive") / "network.pt2"
    shapes = {"x": {0: torch.export.Dim("rows", min=2, max=8)}}
    program = torch.export.export(_Network(), (torch.ones(4, 3),), dynamic_shapes=shapes)
    torch.export.save(program, path)
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        return {name.partition("/")[2]: archive.read(name) for name in names}


def _archive(path: Path, records: Records) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in records.items():
            archive.writestr(f"{path.stem}/{name}", content)
    return path


def _pickled(made: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(made, buffer)
    return buffer.getvalue()


def _changed(records: Records, name: str, change: Callable[[dict], object]) -> Records:
    tree = json.loads(records[name])
    change(tree)
    return {**records, name: json.dumps(tree).encode()}


def _expression(tree: dict, text: str) -> None:
    values = tree["graph_module"]["graph"]["tensor_values"]
    values["x"]["sizes"][0]["as_expr"]["expr_str"] = text


def _calls(target: str, *arguments: object) -> Callable[[dict], None]:
    """Let the first operator be a call of `target`."""
    inputs = [{"name": "", "arg": {"as_string": str(item)}, "kind": 1} for item in arguments]

    def change(tree: dict) -> None:
        node = tree["graph_module"]["graph"]["nodes"][0]
        node["target"], node["inputs"] = target, inputs

    return change


def _structure(tree: dict, structure: object) -> None:
    signature = tree["graph_module"]["module_call_graph"][0]["signature"]
    signature["in_spec"] = json.dumps([1, structure])


def _default(module: str, name: str) -> dict[str, object]:
    context = {
        "default_factory_module": module, "default_factory_name": name, "dict_context": ["x"],
    }  # fmt: skip
    leaf = {"type": None, "context": None, "children_spec": []}
    return {"type": "collections.defaultdict", "context": context, "children_spec": [leaf]}


def _enum(module: str) -> dict[str, object]:
    context = json.dumps([{"__enum__": True, "fqn": f"{module}:A", "name": "A"}])
    return {"type": "builtins.dict", "context": context, "children_spec": []}


def _entry(kind: str) -> dict[str, object]:
    return {"path_name": f"{kind}9", "is_param": False, "use_pickle": True, "tensor_meta": None}


def _kept_as(records: Records, config: str, kind: str, content: bytes) -> Records:
    """Add a tensor or object of its own to one of the tables."""
    changed = _changed(records, config, lambda tree: tree["config"].update(more=_entry(kind)))
    return {**changed, f"{os.path.dirname(config)}/{kind}9": content}


def _renamed(records: Records, name: str, other: str) -> Records:
    """Call something otherwise in the program and among its weights."""
    old, new = json.dumps(name).encode(), json.dumps(other).encode()
    return {key: item.replace(old, new) if key in (_MODEL, _WEIGHTS) else item
            for key, item in records.items()}  # fmt: skip


def _keyword(tree: dict, kind: str, name: str) -> None:
    """Let the only argument be a keyword."""
    leaf = {"type": None, "context": None, "children_spec": []}
    keywords = {"type": kind, "context": json.dumps([name]), "children_spec": [leaf]}
    none = {"type": "builtins.tuple", "context": "null", "children_spec": []}
    _structure(tree, {**none, "children_spec": [none, keywords]})
    tree["graph_module"]["module_call_graph"][0]["signature"]["forward_arg_names"] = None


def _argument(tree: dict, name: str) -> None:
    tree["graph_module"]["module_call_graph"][0]["signature"]["forward_arg_names"] = [name]


def _attacks(records: Records, mark: Path) -> dict[str, Records]:
    """Return archives that would make the folder `mark`, or import a module that does."""
    touch, call = _Touches(mark), f"__import__('os').mkdir({str(mark)!r})"
    lines = f"x):\n    {call}\n    return (x"
    (mark.parent / "touching.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")
    opaque = pickle.dumps(touch)
    legacy = {name: item for name, item in records.items() if name != _WEIGHTS}

    def model(change: Callable[[dict], object]) -> Records:
        return _changed(records, _MODEL, change)

    return {
        "example inputs": {**records, "data/sample_inputs/model.pt": _pickled(((touch,), {}))},
        "tensor of a subclass": _kept_as(records, _WEIGHTS, "weight_", _pickled(touch)),
        "constant": _kept_as(records, _CONSTANTS, "tensor_", _pickled(touch)),
        "opaque object": _kept_as(records, _CONSTANTS, "opaque_obj_", opaque),
        "object of a C++ class": _kept_as(records, _CONSTANTS, "custom_obj_", opaque),
        "weights as of old": {**legacy, "data/weights/model.pt": _pickled({"w": touch})},
        "constants as of old": {**records, "data/constants/model.pt": _pickled({"c": touch})},
        "size": model(lambda tree: _expression(tree, call)),
        "text in a size": model(lambda tree: _expression(tree, f"Add({call!r}, Integer(1))")),
        "attribute in a size": model(lambda tree: _expression(tree, f"Integer.__class__({call})")),
        "function of Python": model(_calls("torch.os.mkdir", mark)),
        "function of a library": model(_calls("torch.ops.load_library", mark)),
        "operator of TorchScript": model(_calls("torch.ops.aten.save.default", "x", mark)),
        "operator that maps a file": model(_calls("torch.ops.aten.from_file.default", mark)),
        "default of a dict": model(lambda tree: _structure(tree, _default("touching", "A"))),
        "enumeration": model(lambda tree: _structure(tree, _enum("touching"))),
        "name of an input": _renamed(records, "x", f"x={call}"),
        "lines in a name": _renamed(records, "x", lines),
        "name of a value": _renamed(records, "mul_2", f"x={call}"),
        "name of a region": _renamed(records, "submod_1", f'x"),{call},getattr(self,"x'),
        "name of a weight": _renamed(
            records, "layer.weight", f'layer.w"),{call},getattr(self.layer,"weight'
        ),
        "name of an argument": model(lambda tree: _argument(tree, f"x={call}")),
        "keyword": model(lambda tree: _keyword(tree, "builtins.dict", f"x={call}")),
        "field of a class": model(lambda tree: _keyword(tree, "touching.A", f"x={call}")),
        "compiled code": {**records, "data/aotinductor/model/model.so": b"\x7fELF"},
        "another program": {**records, "models/other.json": records[_MODEL]},
    }


_NAMES = (
    "example inputs", "tensor of a subclass", "constant", "opaque object",
    "object of a C++ class", "weights as of old", "constants as of old", "size", "text in a size",
    "attribute in a size", "function of Python", "function of a library",
    "operator of TorchScript", "operator that maps a file", "default of a dict", "enumeration",
    "name of an input", "lines in a name", "name of a value", "name of a region",
    "name of a weight", "name of an argument", "keyword", "field of a class",
    "compiled code", "another program",
)  # fmt: skip


@pytest.mark.parametrize("name", _NAMES)
def test_code_is_refused(
    name: str, records: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    mark = tmp_path / "mark"
    attacks = _attacks(records, mark)
    assert tuple(attacks) == _NAMES
    path = _archive(tmp_path / "evil.pt2", attacks[name])
    with pytest.raises(CompileError, match=r"evil.pt2' holds more than data: .*; if you trust it"):
        load(str(path), _PLAIN)
    assert not mark.exists()


@pytest.mark.parametrize(
    "size",
    [
        "Pow(Integer(10), Integer(10000000000))",
        "Pow(Integer(10), evaluate=Integer(10000000000))",
        "Pow(Pow(Integer(9), Integer(64)), Integer(64))",
        "Pow(Integer(2), Mul(Integer(64), Pow(Integer(64), Integer(64))))",
        "Pow(Integer(2), Symbol('s77', integer=True))",
    ],
)
def test_sizes_that_take_for_ever_to_compute_are_refused(
    size: str, records: Records, tmp_path: Path
) -> None:
    changed = _changed(records, _MODEL, lambda tree: _expression(tree, size))
    with pytest.raises(CompileError, match=r"slow.pt2' holds more than data: expr_str .Pow"):
        load(str(_archive(tmp_path / "slow.pt2", changed)), _PLAIN)


def test_names_that_a_program_may_have(tmp_path: Path) -> None:
    """Keys of dicts and of modules are no names of Python; squares and shares stand in sizes."""

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleDict({"a-b": nn.Linear(3, 3), "c d": nn.Linear(3, 3)})

        def forward(self, x: torch.Tensor, *, some: dict[str, torch.Tensor]) -> object:
            y = self.parts["c d"](self.parts["a-b"](x) + some["in/put"])
            y = y.masked_fill(y > 9, -math.inf).nan_to_num(math.nan, math.inf, 1e-30)
            return {"out put": y, "pairs": (x[:, None] + x[None]).reshape(x.shape[0] ** 2, 3)}

    x = torch.arange(6.0).reshape(2, 3)
    module, some = Odd(), {"in/put": x}
    rows = {0: torch.export.Dim("rows", min=2, max=8)}
    shapes = {"x": rows, "some": {"in/put": rows}}
    path = tmp_path / "odd.pt2"
    exported = torch.export.export(module, (x,), {"some": some}, dynamic_shapes=shapes)
    torch.export.save(exported, path)
    source = load(str(path), _PLAIN)
    wanted = module(x, some=some)
    found = run(source.model, {name: x.numpy() for name in source.signature.inputs})
    for got, want in zip(found.values(), wanted.values(), strict=True):
        np.testing.assert_allclose(got, want.detach(), atol=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: _argument(tree, "1x"),
        lambda tree: _argument(tree, "lambda"),
        lambda tree: tree["graph_module"]["graph"]["nodes"][0]["metadata"].update(stack_trace=3),
        lambda tree: tree["graph_module"]["graph"]["nodes"][0].update(metadata=[]),
        lambda tree: tree["graph_module"]["graph"]["nodes"][0]["inputs"].pop(0),
        lambda tree: tree["graph_module"]["graph"]["nodes"][1]["inputs"].pop(1),
    ],
)
def test_what_pytorch_stumbles_over_is_the_file_s_fault(
    change: Callable[[dict], object], records: Records, tmp_path: Path
) -> None:
    path = _archive(tmp_path / "odd.pt2", _changed(records, _MODEL, change))
    with pytest.raises(CompileError):
        sambac.compile(path)


def test_checks_of_an_archive_do_not_run_it_later(records: Records, tmp_path: Path) -> None:
    """Conditions on sizes are Python that nobody asked for."""
    mark = tmp_path / "mark"
    code = f"__import__('os').mkdir({str(mark)!r})"
    changed = _changed(records, _MODEL, lambda tree: tree.update(guards_code=[code]))
    source = load(str(_archive(tmp_path / "network.pt2", changed)), _PLAIN)
    assert source.signature.inputs == ("x",)
    assert not mark.exists()


def test_data_is_loaded(records: Records, tmp_path: Path) -> None:
    """Regions, open sizes with arithmetic, and constants are no code."""
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    path = _archive(tmp_path / "network.pt2", records)
    source = load(str(path), _PLAIN)
    want = torch.export.load(path).module()(torch.from_numpy(x))["y"]
    np.testing.assert_allclose(run(source.model, {"x": x})["y"], want.detach(), atol=1e-5)


@pytest.mark.parametrize("missing", ["data/sample_inputs/model.pt", _MODEL, "archive_version"])
def test_incomplete_archives(missing: str, records: Records, tmp_path: Path) -> None:
    kept = {name: content for name, content in records.items() if name != missing}
    path = _archive(tmp_path / "part.pt2", kept)
    with pytest.raises(CompileError, match=r"part.pt2' cannot be read"):
        load(str(path), _PLAIN)


_LEAF: dict[str, object] = {"type": None, "context": None, "children_spec": []}


@pytest.mark.parametrize(
    ("context", "names"),
    [
        (["y", "z"], ("y", "z")),
        ([["y", "z"], ["absent"]], ("y", "z")),
        (None, ("output_0", "output_1")),
        ([3, "z"], ("output_0", "output_1")),
    ],
)
def test_results_of_classes_that_are_not_there(context: object, names: tuple[str, ...]) -> None:
    """The file says what the fields are called, as libraries and dataclasses keep it."""
    outputs = {
        "type": "absent.Outputs", "context": json.dumps(context), "children_spec": [_LEAF] * 2,
    }  # fmt: skip
    listed = {"type": "builtins.list", "context": "null", "children_spec": [outputs]}
    assert result_names(read_structure(json.dumps([1, outputs]))) == names
    inside = tuple(f"output_0_{name.removeprefix('output_')}" for name in names)
    assert result_names(read_structure(json.dumps([1, listed]))) == inside


def test_a_program_of_a_class_that_is_not_there(records: Records, tmp_path: Path) -> None:
    """As of transformers, which need not be installed where its models are compiled."""

    def change(tree: dict) -> None:
        signature = tree["graph_module"]["module_call_graph"][0]["signature"]
        signature["out_spec"] = signature["out_spec"].replace("builtins.dict", "absent.Outputs")

    path = _archive(tmp_path / "network.pt2", _changed(records, _MODEL, change))
    assert load(str(path), _PLAIN).signature.outputs == ("y",)
