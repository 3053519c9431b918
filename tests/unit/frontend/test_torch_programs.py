"""What may be given: modules with inputs in several forms, programs, files; and what may not."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from near import assert_near
from torch import nn
from torch.ao.nn.quantized import FloatFunctional, FXFloatFunctional
from torch.ao.quantization import quantize_dynamic
from torch.nn import functional
from torch_runs import (
    Lambda,
    operators,
    run,
    run_evaluation,
    run_training,
    stops,
    training_source,
)

from sambac import compile
from sambac.errors import CompileError
from sambac.frontend import load
from sambac.options import CompileOptions

_PLAIN = CompileOptions()
_ROW = torch.ones(1, 3)
_TRAIN = CompileOptions(train=True)

_CODE = """
import torch
from neighbour import SIZE

class Model(torch.nn.Linear):
    pass

def make():
    return Model(SIZE, 2), (torch.ones(1, SIZE),)

def wrong():
    return 3

def failing():
    raise KeyError("weights")

def leaving():
    raise SystemExit(5)

module = Model(SIZE, 2)
"""


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


class _Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor, power: int = 1) -> torch.Tensor:
        return self.layer(x) * scale**power


class _Nested(nn.Module):
    def forward(self, x: torch.Tensor, pair: dict[str, torch.Tensor]) -> object:
        total = x + pair["a"]
        return {"sum": total, "both": (total * 2, Pair(x, pair["b"])), "same": total, "no": None,
                "count": 3}  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "neighbour.py").write_text("SIZE = 3\n")
    path = tmp_path / "code.py"
    path.write_text(_CODE)
    return path


def test_keywords() -> None:
    module, x, scale = _Scaled(), torch.randn(5, 3), torch.tensor(2.0)
    source = load(module, _PLAIN, ({"x": x.numpy(), "scale": scale, "power": 2}))
    assert source.signature.inputs == ("x", "scale")
    want = module.eval()(x, scale=scale, power=2).detach().numpy()
    got = run(source.model, {"x": x.numpy(), "scale": scale.numpy()})
    np.testing.assert_allclose(got["output"], want, atol=1e-5)
    mixed = load(module, _PLAIN, (x, {"scale": scale}))
    assert mixed.signature.inputs == ("x", "scale")


def test_names_of_structures() -> None:
    x = torch.ones(2)
    source = load(_Nested(), _PLAIN, (x, {"a": x, "b": x + 1}))
    assert source.signature.inputs == ("x", "pair_a", "pair_b")
    assert source.signature.outputs == (
        "sum", "both_0", "both_1_left", "both_1_right", "same", "count",
    )  # fmt: skip
    feeds = {"x": x.numpy(), "pair_a": x.numpy(), "pair_b": (x + 1).numpy()}
    got = run(source.model, feeds)
    assert got["count"] == 3
    np.testing.assert_array_equal(got["same"], got["sum"])
    np.testing.assert_array_equal(got["both_1_right"], [2, 2])


def test_a_program_trains_and_evaluates(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, x, scale = _Scaled(), torch.randn(5, 3), torch.tensor(2.0)
    program = torch.export.export(module, (x,), {"scale": scale})
    torch.export.save(program, tmp_path / "scaled.pt2")
    before = str(program.graph)
    for model in (program, tmp_path / "scaled.pt2"):
        source = load(model, _TRAIN)
        assert "Dropout" in operators(source.model)
        assert source.roles is not None
        assert source.roles.parameters == tuple(name for name, _ in module.named_parameters())
        assert len(source.roles.updates) == 3
        got = run_evaluation(source, x, scale)["output"]
        want = module.eval()(x, scale=scale).detach().numpy()
        np.testing.assert_allclose(got, want, atol=1e-5)
    assert str(program.graph) == before
    assert source.name == "scaled"


class _InModes(nn.Module):
    """What has modes beside the common layers, one of them inside a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.InstanceNorm1d(3, track_running_stats=True)
        self.norm.running_mean = torch.tensor([1.0, 2.0, 3.0])
        self.plain = nn.BatchNorm1d(3, affine=False, track_running_stats=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.plain(self.norm(x))
        training = self.training
        rate = 0.5 if training else 0.0
        x = x + functional.scaled_dot_product_attention(x, x, x, dropout_p=rate)

        def dropped(t: torch.Tensor) -> torch.Tensor:
            return functional.dropout(t, 0.5, training)

        return torch.cond(x.square().sum() >= 0, dropped, torch.sin, (x,))


def test_every_mode_is_changed() -> None:
    module, x = _InModes(), torch.randn(2, 3, 5)
    source = load(torch.export.export(module, (x,)), _TRAIN)
    assert source.evaluation is not None
    assert "Attention" in operators(source.evaluation)  # which cannot drop
    want = module.eval()(x).detach().numpy()
    np.testing.assert_allclose(run_evaluation(source, x)["output"], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(3), nn.Dropout(0.5)])
def test_a_decomposed_program_is_refused(layer: nn.Module) -> None:
    with warnings.catch_warnings(action="ignore"):  # PyTorch warns of itself
        program = torch.export.export(layer, (torch.randn(2, 3),)).run_decompositions()
    with pytest.raises(CompileError, match="is decomposed"):
        load(program, _TRAIN)


def test_a_callable_in_a_file(file: Path) -> None:
    source = load(f"{file}:make", _TRAIN)
    assert (source.name, source.signature.inputs) == ("code", ("input",))
    assert run_training(source, torch.ones(1, 3))["output"].shape == (1, 2)
    assert not stops(source.model)


def test_a_callable_in_a_file_leaves_sizes_open(tmp_path: Path) -> None:
    path = tmp_path / "open.py"
    path.write_text(
        "import torch\n"
        "def make():\n"
        "    batch = torch.export.Dim('batch', max=8)\n"
        "    return torch.nn.Linear(3, 2), (torch.ones(4, 3),), {'input': {0: batch}}\n"
    )
    model = f"{path}:make"
    program = compile(model)
    shapes = [program.symbols[port.symbol].shape for port in program.graphs[0].outputs]
    assert shapes == [("batch", 2)]
    with pytest.raises(CompileError, match="training needs the sizes of all inputs"):
        load(model, _TRAIN)
    with pytest.raises(CompileError, match="dynamic_shapes belong to a torch"):
        compile(model, dynamic_shapes={"input": {0: torch.export.Dim("rows")}})


def test_what_files_lack(file: Path, tmp_path: Path) -> None:
    for model, message in (
        (f"{file}:mak", r"has no callable 'mak' \(did you mean 'make'\?\)"),
        (f"{file}:wrong", r"returned a int; it has to return a torch\.nn\.Module"),
        (f"{file}:module", r"module is a Model; name a function without arguments that returns it"),
        (f"{file}:failing", r"failing failed: KeyError"),
        (f"{file}:leaving", r"leaving failed: SystemExit: 5"),
        (f"{tmp_path / 'other.py'}:make", "there is no file"),
        (tmp_path / "none.pt2", "there is no file"),
        (file.with_name("code.pt2"), "is no exported program"),
        (file.with_name("parts.pt2"), "parts.pt2' cannot be read: zipfiles that span multiple"),
    ):
        file.with_name("code.pt2").write_text("text")
        # The end of an archive on two disks, at which the library stumbles.
        ends = b"PK\6\7" + bytes(12) + b"\2\0\0\0" + b"PK\5\6" + bytes(18)
        file.with_name("parts.pt2").write_bytes(ends)
        with pytest.raises(CompileError, match=message):
            load(model, _PLAIN)


def test_the_reason_is_not_what_the_caller_was_handling() -> None:
    """As where another model is compiled because the first one cannot be."""

    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.bessel_j0(x)

    class Failing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("of the first")

    x = (torch.ones(3),)
    try:
        load(Failing(), _PLAIN, x)
    except CompileError:
        with pytest.raises(CompileError, match=r"no ONNX form.*\(No ONNX function .*bessel_j0"):
            load(Odd(), _PLAIN, x)


def test_what_modules_lack() -> None:
    class Branching(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.sum() > 0 else x

    with pytest.raises(CompileError, match="Linear is a torch module and needs example inputs"):
        load(nn.Linear(3, 2), _PLAIN)
    with pytest.raises(CompileError, match="control flow depends on the values of tensors"):
        load(Branching(), _PLAIN, (torch.ones(2),))
    with pytest.raises(CompileError, match="Linear cannot be exported: a and b must have same"):
        load(nn.Linear(3, 2), _PLAIN, (torch.ones(2, 4),))
    with pytest.raises(CompileError, match="example inputs belong to a torch"):
        load("model.onnx", _PLAIN, (torch.ones(2),))
    with pytest.raises(CompileError, match="a dict is no model"):
        load({}, _PLAIN)  # type: ignore[arg-type]
    with pytest.raises(CompileError, match=r"a list is no model; .*compile_graphs takes several"):
        load([nn.Linear(2, 2)], _PLAIN)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore")  # PyTorch warns of its own
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("traced", [True, False])
def test_torchscript(traced: bool, inside: bool) -> None:
    layer = nn.Linear(3, 2)
    made = torch.jit.trace(layer, _ROW) if traced else torch.jit.script(layer)
    module = nn.Sequential(made) if inside else made
    if traced and inside:
        source = load(module, _PLAIN, (_ROW,))
        want = layer(_ROW).detach()
        np.testing.assert_allclose(run(source.model, {"input": _ROW.numpy()})["output"], want)
        return
    for options in (_PLAIN, _TRAIN):
        with pytest.raises(CompileError, match=r"torch\.jit\.script.* that it was made from"):
            load(module, options, (_ROW,))


@pytest.mark.filterwarnings("ignore")  # PyTorch warns of its own
@pytest.mark.parametrize("layer", [nn.Linear, nn.LSTM])
def test_quantised_layers_are_refused(layer: type[nn.Module]) -> None:
    module = quantize_dynamic(nn.Sequential(layer(3, 2)), {layer})
    for options in (_PLAIN, _TRAIN):
        with pytest.raises(CompileError, match=r"^0 is a quantised layer .* before it was quant"):
            load(module, options, (_ROW,))


@pytest.mark.filterwarnings("ignore")  # PyTorch warns of its own
@pytest.mark.parametrize("kind", [FloatFunctional, FXFloatFunctional])
def test_operators_that_wait_to_be_quantised_are_plain(kind: type[nn.Module]) -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.skip = nn.Linear(3, 3), kind()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.skip.cat([self.skip.add_relu(x, self.layer(x)), x], 1)

    module = Residual()
    want = module.double()(_ROW.double()).detach().numpy()
    for options in (_PLAIN, _TRAIN):
        source = load(module.float(), options, (_ROW,))
        assert_near(run(source.model, {"x": _ROW.numpy()})["output"], want)


@pytest.mark.filterwarnings("ignore")  # PyTorch warns of its own
@pytest.mark.parametrize("options", [_PLAIN, _TRAIN])
def test_parameters_that_the_first_call_makes_are_asked_for(options: CompileOptions) -> None:
    module = nn.Sequential(nn.LazyLinear(2), nn.LazyBatchNorm1d())
    rows = _ROW.expand(2, -1)
    words = r"has 0\.weight, 0\.bias, 1\.weight, .* of no shape yet, .* call it once on example"
    with pytest.raises(CompileError, match=words):
        load(module, options, (rows,))
    module(rows)
    load(module, options, (rows,))


@pytest.mark.filterwarnings("ignore")  # PyTorch warns of its own
def test_sparse_tensors_are_refused() -> None:
    class Graph(nn.Module):
        def __init__(self, layout: torch.layout) -> None:
            super().__init__()
            self.register_buffer("near", torch.eye(3).to_sparse(layout=layout))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.near @ x  # type: ignore[operator]  # a buffer

    constant, x = torch.eye(3).to_sparse_csr(), torch.ones(3, 2)
    for model, inputs, message in (
        (Graph(torch.sparse_coo), (x,), r"Graph has sparse tensors \(near\), which have no ONNX"),
        (Graph(torch.sparse_csr), (x,), r"Graph has sparse tensors \(near\), which have no ONNX"),
        (Lambda(lambda a, x: a @ x), (constant, x), r"has sparse tensors \(inputs\), which have"),
        (Lambda(lambda x: constant @ x), (x,), "computes with sparse tensors, which have no ONNX"),
        (Lambda(lambda x: x.to_sparse() @ x.T), (x,), "computes with sparse .* with to_dense()"),
    ):
        with pytest.raises(CompileError, match=message):
            load(model, _PLAIN, inputs)


def test_threads_take_turns() -> None:
    asks, layers = torch.compiler.is_exporting, [nn.Linear(3, 2) for _ in range(4)]
    with ThreadPoolExecutor() as threads:
        sources = [*threads.map(lambda layer: load(layer, _PLAIN, (torch.ones(2, 3),)), layers)]
    assert torch.compiler.is_exporting is asks
    for layer, source in zip(layers, sources, strict=True):
        (found,) = run(source.model, {"input": np.ones((2, 3), np.float32)}).values()
        assert_near(found, layer.double()(torch.ones(2, 3).double()))


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    class Branching(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.sum() > 0 else x

    training_source(nn.Linear(3, 2), torch.ones(2, 3))
    with pytest.raises(CompileError):
        load(Branching(), _PLAIN, (torch.ones(2),))
    assert capfd.readouterr() == ("", "")
