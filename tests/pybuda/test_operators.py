"""Every operator against a formula of its own, called on tensors and compiled for the device."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy import ndarray as Array
from pybuda_cases import CASES as ELEMENTWISE
from pybuda_cases import Case
from pybuda_volume_cases import CASES as VOLUMES

import pybuda
import sambac
from pybuda import op
from pybuda.recorded import RecordedModule
from pybuda.stage import compiled as compiled_stage
from sambahost.chains import Chain
from sambahost.compiled_step import StepRequest, compile_step
from sambahost.samples import Samples
from sambahost.stages import Stage, TrainedStage
from sambahost.trained_values import TrainedValues

CASES = {**ELEMENTWISE, **VOLUMES}


class _All(pybuda.PyBudaModule):
    """All cases at once: a graph with an output for each."""

    def __init__(self, cases: list[Case]) -> None:
        super().__init__("all")
        self.cases = cases

    def forward(self, *inputs: pybuda.Tensor) -> tuple[pybuda.Tensor, ...]:
        left = iter(inputs)
        return tuple(case.call(*(next(left) for _ in case.inputs)) for case in self.cases)


@pytest.fixture(scope="module")
def compiled() -> dict[str, Array]:
    """What the device gives for each case."""
    part = _All([*CASES.values()]).part()
    assert isinstance(part, torch.nn.Module)
    inputs = [torch.from_numpy(array) for case in CASES.values() for array in case.inputs]
    stage = Stage(compiled_stage(Chain([part], RuntimeError), inputs), None, "pybuda", RuntimeError)
    try:
        found = [tensor.numpy() for tensor in stage.forward(inputs)]
    finally:
        stage.close()
    return dict(zip(CASES, found, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_an_operator_on_tensors(name: str) -> None:
    case = CASES[name]
    found = case.call(*map(pybuda.Tensor.create_from_torch, map(torch.from_numpy, case.inputs)))
    _require_near(found.value().numpy(), case)


@pytest.mark.parametrize("name", CASES)
def test_an_operator_on_the_device(name: str, compiled: dict[str, Array]) -> None:
    _require_near(compiled[name], CASES[name])


def test_every_operator_has_a_case() -> None:
    assert {name.partition(" ")[0] for name in CASES} == {*op.__all__}


def _require_near(found: Array, case: Case) -> None:
    assert found.shape == case.expected.shape
    np.testing.assert_allclose(found, case.expected, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda t: op.Relu("", t, mode="mean"), "'mean' is no mode; there are min and max"),
        (lambda t: op.HSlice("", t, 4), "HSlice: 6 columns are not 4 equal parts"),
        (lambda t: op.VStack("", t, 3), "VStack: 4 slices of Z are not 3 equal parts"),
        (lambda t: op.Index("", t, 3, 7), "is nothing of dimension 3, which has 6"),
        (lambda t: op.Select("", t, 3, (2, 3), 4), "3 elements from 2 on are not within each 4"),
        (lambda t: op.Pad("", t, (1, 2), mode="edge"), "'edge' is no mode"),
        (lambda t: op.Pad("", t, (1, 2, 3)), "3 sizes came"),
        (lambda t: op.Conv2d("", t, t, padding="valid"), "'valid' is no padding"),
        (lambda t: op.Conv2d("", t, t, padding=[1, 2, 3]), "3 numbers of padding came"),
        (lambda t: op.MaxPool2d("", t, 3, padding=[0, 1, 0, 0]), "differs from side to side"),
        (lambda t: op.Conv2dTranspose("", t, t, padding=[0, 1, 0, 0]), "differs from side to side"),
        (lambda t: op.Dropout("", t, p=1), "Dropout: p is 1; a share from 0 to below 1"),
        (lambda t: op.MaxPool2d("", t, 2, return_indices=True), "an operator has one result"),
        (lambda t: op.AdvIndex("", t, t, 1), "AdvIndex: dimension 1 came; 0 is supported"),
        (lambda t: op.Resize3d("", t, (8, 12, 12), "linear"), "'linear' is no method; nearest_n"),
        (lambda t: op.Squeeze("", t, 1), "dimension 1 has 4 elements, not 1"),
        (lambda t: op.HStack("", pybuda.Tensor(torch.zeros(2, 2))), r"\(..., depth, rows, columns"),
        (lambda t: t + t.value(), "a Tensor came as an operand; a pybuda Tensor, a Parameter or"),
        (lambda t: op.Identity("", t, unsqueeze="unsqueeze"), "unsqueeze needs unsqueeze_dim"),
        (lambda t: op.Abs(t, t), "a Tensor came as the name of an operator"),
        (lambda t: op.Abs("", t.value()), "a Tensor came as an operand; a pybuda Tensor or"),
    ],
)  # fmt: skip
def test_what_an_operator_refuses(call: Callable[..., object], says: str) -> None:
    tensor = pybuda.Tensor.create_from_torch(torch.zeros(1, 4, 6, 6))
    with pytest.raises(pybuda.PyBudaError, match=says):
        call(tensor)


def test_what_an_operator_does_not_take_is_told_with_what_it_takes() -> None:
    tensor = pybuda.Tensor.create_from_torch(torch.zeros(2, 2))
    with pytest.raises(TypeError, match=r"no argument 'dimm' \(did you mean 'dim'\?\); it takes"):
        op.ReduceSum("", tensor, dimm=0)
    with pytest.raises(
        TypeError, match=r"Add: missing .*'operandB'; it takes name, operandA, oper"
    ):
        op.Add("", tensor)
    assert str(inspect.signature(op.Concatenate)) == (
        "(name: 'str', *operands: 'Operand', axis: 'int') -> 'Tensor'"
    )


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("encoder.q", "0.encoder.q"),
        ("", "0.matmul_0"),
        ("training", "0.training_"),
        ("p0", "0.p0_"),
        ("a..forward", "0.a._.forward_"),
    ],
)
def test_operators_keep_their_names_on_the_device(name: str, found: str) -> None:
    class Named(pybuda.PyBudaModule):
        def __init__(self) -> None:
            super().__init__("named")
            self.weights = pybuda.Parameter(torch.ones(2, 2))

        def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
            return op.Matmul(name, x, self.weights)

    part = Chain([RecordedModule(Named())], RuntimeError)
    stage = Stage(compiled_stage(part, [torch.ones(2, 2)]), None, "pybuda", RuntimeError)
    stage.close()
    assert [path for path, module in part.named_modules() if path.count(".") > 0][-1] == found


def test_dropout_drops_in_training_alone() -> None:
    ones = torch.ones(1, 1000)
    kept = op.Dropout("", pybuda.Tensor(ones), p=0.25).value()
    assert {*kept.unique().tolist()} == {0.0, float(torch.tensor(1 / 0.75))}
    assert 700 < kept.count_nonzero() < 800

    class Dropping(pybuda.PyBudaModule):
        def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
            return op.Dropout("drop", x, p=0.25)

    part = RecordedModule(Dropping("dropping"))
    stage = Stage(compiled_stage(Chain([part], RuntimeError), [ones]), None, "pybuda", RuntimeError)
    (evaluated,) = stage.forward([ones])
    stage.close()
    assert torch.equal(evaluated, ones)
    step = StepRequest(lambda _: sambac.CompileOptions(), {}, lambda _: None, first=False)
    (made,) = compile_step(
        step, [Chain([part], RuntimeError)], (Samples((ones,)), None), TrainedValues()
    ).made
    trained = TrainedStage(made, 1, None, "pybuda", RuntimeError)
    ((dropped,), _) = trained.forward([ones])
    trained.close()
    assert 700 < dropped.count_nonzero() < 800


def test_operands_of_other_types_become_the_first_ones() -> None:
    whole = pybuda.Tensor.create_from_torch(torch.tensor([1, 2], dtype=torch.int32))
    parts = pybuda.Tensor.create_from_torch(torch.tensor([1.5, 2.0]))
    truths = pybuda.Tensor.create_from_torch(torch.tensor([True, False]))
    assert op.Equal("", whole, parts).value().tolist() == [1, 1]
    assert op.Add("", parts, whole).value().tolist() == [2.5, 4.0]
    assert (whole + parts).value().tolist() == [2, 4]
    assert (whole + 1).value().tolist() == [2, 3]
    assert op.Add("", truths, parts).value().tolist() == [2.5, 2.0]


def test_products_are_in_the_type_of_the_first_operand() -> None:
    bytes_ = pybuda.Tensor(torch.full((2, 2), 100, dtype=torch.int8))
    assert op.Matmul("", bytes_, bytes_).value().tolist() == [[20000, 20000]] * 2
    narrow = pybuda.Tensor(torch.ones(2, 2, dtype=torch.bfloat16))
    found = op.Matmul(
        "", narrow, pybuda.Parameter(torch.ones(2, 2)), pybuda.Parameter(torch.ones(2))
    )
    assert (found.value().dtype, found.value().tolist()) == (torch.bfloat16, [[3, 3]] * 2)
