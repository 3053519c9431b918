"""Errors about a PyTorch model name the line of its code and the module."""

from __future__ import annotations

import importlib
from pathlib import Path

import onnx_ir as ir
import pytest
import torch
from torch import nn
from torch_runs import training_source

import sambac
from sambac.errors import CompileError
from sambac.frontend.torch import errors
from sambac.graph.origins import SOURCE_LINE, last_line, module_of, place_of, spell_place


class _Untranslated(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigvalsh(x + 1)


class _Undifferentiable(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[(x > 0).nonzero()[:, 0]].cumsum(0)


class _Branching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


class _Net(nn.Module):
    """A layer, then `inner`."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.layer, self.inner = nn.Linear(4, 4), inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(self.layer(x)).sum()


def _message(inner: nn.Module) -> str:
    with pytest.raises(CompileError) as caught:
        sambac.compile(_Net(inner), sambac.CompileOptions(train=True), inputs=(torch.ones(4, 4),))
    return str(caught.value)


def _line(module: type[nn.Module]) -> str:
    return f"{Path(__file__).name}:{module.forward.__code__.co_firstlineno + 1}"


def test_an_operator_without_a_translation() -> None:
    message = _message(_Untranslated())
    assert message.startswith(f"_Net cannot be exported at {_line(_Untranslated)}, in inner: ")
    assert "linalg_eigh" in message


def test_an_operator_without_a_gradient() -> None:
    message = _message(_Undifferentiable())
    assert f" at {_line(_Undifferentiable)}, in inner (the size of" in message


def test_code_that_cannot_be_recorded() -> None:
    assert f"_Net cannot be exported at {_line(_Branching)}: " in _message(_Branching())


_LIBRARY = """import torch


class Checked(torch.nn.Module):
    def forward(self, x):
        if not _finite(x):
            x = torch.nan_to_num(x)
        return x


def _finite(x):
    return bool(x.isfinite().all())
"""


def test_code_of_a_library_that_cannot_be_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line of its module, which says what there is to change, and the one that calls it."""
    (tmp_path / "library.py").write_text(_LIBRARY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(errors, "OTHERS", (*errors.OTHERS, str(tmp_path)))
    inner = importlib.import_module("library").Checked()
    called = _Net.forward.__code__.co_firstlineno + 1
    place = f"at library.py:6, called at {Path(__file__).name}:{called}: its control flow"
    assert place in _message(inner)
    with pytest.raises(CompileError, match=r"Checked cannot be exported at library\.py:6: its"):
        sambac.compile(inner, inputs=(torch.ones(4),))


class _Halves(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = x.chunk(2, dim=1)
        return left * right


def test_an_operator_that_an_optimizer_made_has_the_module_of_a_neighbour() -> None:
    graph = training_source(_Net(_Halves()), torch.ones(4, 4)).model.graph
    modules = {node.op_type: module_of(node) for node in graph}
    assert modules["Split"] in ("layer", "inner")


def test_the_folder_of_the_source_is_not_in_the_file(tmp_path: Path) -> None:
    text = (
        "import torch\n\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
        "        return torch.relu(x)\n\n\ndef make():\n    return Net(), (torch.ones(2),)\n"
    )
    programs = []
    for folder in ("one", "another"):
        source = tmp_path / folder / "net.py"
        source.parent.mkdir()
        source.write_text(text)
        programs.append(sambac.compile(f"{source}:make"))
    assert programs[0] == programs[1]


def test_the_last_line_of_a_trace_that_is_not_of_torch() -> None:
    trace = (
        'File "/models/net.py", line 7, in forward\n    return self.layer(x)\n'
        '  File "/lib/python3/site-packages/torch/nn/modules/linear.py", line 134, in forward\n'
        '  File "<eval_with_key>.12", line 11, in forward'
    )
    assert last_line(trace) == "net.py:7"
    assert last_line("") == ""


@pytest.mark.parametrize(
    ("line", "module", "place"),
    [("a.py:1", "b.c", " at a.py:1, in b.c"), ("a.py:1", "", " at a.py:1"), ("", "", "")],
)
def test_places_are_spelled(line: str, module: str, place: str) -> None:
    assert spell_place(line, module) == place


def test_the_place_of_an_operator() -> None:
    node = ir.node("Relu", [], name="/block/act/Relu", metadata_props={SOURCE_LINE: "net.py:3"})
    assert place_of(node) == " at net.py:3, in block.act"
