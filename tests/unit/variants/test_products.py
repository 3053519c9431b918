"""Products give the same numbers in the formulation that is chosen for them."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from near import assert_near

import sambac
import sambarun
from sambac.passes.choose_products import ChooseProducts
from sambac.passes.infer_shapes import InferShapes
from sambac.variants.chunks import PROCESSOR
from sambac.variants.products import WriteProducts
from sambarun.sessions.opening import Tuning, create_session
from sambarun.sessions.threads import Threads

# Terms, columns of the left operand and of the right one, and the operators that come of them.
SIZES = {
    "left": (300, 72, 136, ["Transpose", "Gemm"]),
    "equal": (70, 160, 160, ["Transpose", "Gemm"]),
    "right": (500, 200, 24, ["Transpose", "Gemm", "Transpose"]),
    "few terms": (20, 300, 200, ["Transpose", "Gemm"]),
    "narrow left": (2000, 24, 300, ["Gemm"]),
    "small": (20, 100, 100, ["Gemm"]),
}


def _model(terms: int, rows: int, columns: int, flags: str = "transA = 1, alpha = 0.5") -> ir.Model:
    parsed = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 23]> '
        f"product (float[{terms},{rows}] g, float[{terms},{columns}] x) => (float[a,b] y) "
        f"{{ y = Gemm <{flags}> (g, x) }}"
    )
    InferShapes()(parsed)
    return parsed


def _write(model: ir.Model) -> bool:
    """Choose by guess and write; tell whether that changed anything."""
    chosen = ChooseProducts()(model).modified
    assert WriteProducts()(model).modified == chosen
    return chosen


@pytest.mark.parametrize("name", SIZES)
def test_results_and_operators(name: str) -> None:
    terms, rows, columns, operators = SIZES[name]
    model = _model(terms, rows, columns)
    _write(model)
    assert [node.op_type for node in model.graph] == operators
    rng = np.random.default_rng(2)
    g, x = (rng.standard_normal((terms, n)).astype(np.float32) for n in (rows, columns))
    made = ir.serde.serialize_model(model).SerializeToString()
    (found,) = ort.InferenceSession(made).run(None, {"g": g, "x": x})
    assert_near(found, 0.5 * (g.T.astype(np.float64) @ x), size=terms**0.5, what=name)


def test_products_with_nothing_to_turn_are_kept() -> None:
    model = _model(200, 200, 200, "alpha = 2.0")
    assert not _write(model)


class _Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(200, 192), torch.nn.Linear(192, 72))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).square().mean()


def test_steps_are_those_of_pytorch_in_float64() -> None:
    torch.manual_seed(0)
    module, x = _Layers(), torch.randn(96, 200)
    program = sambac.compile(
        module,
        sambac.CompileOptions(train=True, optimizers=(sambac.SGD(lr=0.5),)),
        inputs=(x,),
    )
    assert any(PROCESSOR in made.requires for made in program.programs)
    exact = copy.deepcopy(module).double()
    optimizer = torch.optim.SGD(exact.parameters(), lr=0.5)
    with sambarun.load(program, threads=1) as executable:
        for _ in range(3):
            executable.step({"x": x.numpy()})
            optimizer.zero_grad()
            exact(x.double()).backward()
            optimizer.step()
        states = executable.state()
    for name, parameter in exact.named_parameters():
        assert_near(states[name], parameter.detach().numpy(), size=1.0, what=name)


def test_sessions_of_steps_keep_what_is_turned_first(tmp_path: Path) -> None:
    terms, rows, columns, operators = SIZES["right"]
    model = _model(terms, rows, columns)
    _write(model)
    tuning = Tuning(Threads(1), moves=False, profiles=str(tmp_path))
    session = create_session(ir.serde.serialize_model(model).SerializeToString(), "", tuning)
    session.run(None, {put.name: np.ones(put.shape, np.float32) for put in session.get_inputs()})
    events = json.loads(Path(session.end_profiling()).read_text())
    ran = [event["args"]["op_name"] for event in events if event["name"].endswith("kernel_time")]
    assert ran == operators
